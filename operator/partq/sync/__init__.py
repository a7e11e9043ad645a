"""Producer, consumers and reader for code that is not asynchronous: Flask, Django, Celery, scripts.

```python
from partq.sync import Consumer, Producer, QueuesConsumer, Reader
```
"""

from partq.sync.consumer import SyncConsumer as Consumer
from partq.sync.producer import SyncProducer as Producer
from partq.sync.queues_consumer import SyncQueuesConsumer as QueuesConsumer
from partq.sync.reader import SyncReader as Reader

__all__ = ["Consumer", "Producer", "QueuesConsumer", "Reader"]
