"""Joins the store and the operator."""

from partq.cli.hosting.queue_store import RedisQueueStore
from partq.kube.app import Operator
from partq.kube.names import QueueKey
from partq.settings import OperatorSettings


async def operate(settings: OperatorSettings) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        SettingsError: a setting is unusable, or there is no way to the API server.
    """

    async def open_queue(url: str, key: QueueKey, uid: str) -> RedisQueueStore:
        return await RedisQueueStore.open(url, key, uid, prefix=settings.key_prefix)

    await Operator(settings, open_queue).run()
