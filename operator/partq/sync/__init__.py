"""Producer and consumer for code that is not asynchronous: Flask, Django, Celery, scripts.

```python
from partq.sync import Consumer, Producer
```
"""

from partq.sync.consumer import SyncConsumer as Consumer
from partq.sync.producer import SyncProducer as Producer

__all__ = ["Consumer", "Producer"]
