"""Producer, consumers and reader for code that is not asynchronous: Flask, Django, Celery, scripts.

```python
from partq.sync import Consumer, Producer, QueuesConsumer, Reader, SessionConsumer
```
"""

from partq.sync.consumer import SyncConsumer as Consumer
from partq.sync.producer import SyncProducer as Producer
from partq.sync.producer import SyncTransaction as Transaction
from partq.sync.queues_consumer import SyncQueuesConsumer as QueuesConsumer
from partq.sync.reader import SyncReader as Reader
from partq.sync.session_consumer import SyncLockedSession as LockedSession
from partq.sync.session_consumer import SyncSessionConsumer as SessionConsumer

__all__ = [
    "Consumer",
    "LockedSession",
    "Producer",
    "QueuesConsumer",
    "Reader",
    "SessionConsumer",
    "Transaction",
]
