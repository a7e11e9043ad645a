"""Messages that do not decode, published to a real broker as a broken client would."""

from aiohttp import ClientSession

from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.testing import frame_peers
from partq.wire import batch, frames

GARBAGE = b"\xc1" * 100
KEY = "k"


async def publish_undecodable(
    url: str, queue: str, token: str, *, count: int, partition_count: int
) -> int:
    """Store messages that do not decode as one batch; return the index of their partition.

    `url`: of the broker that owns the partition, or of the only one.
    """
    layout = Layout.first(partition_count)
    async with ClientSession() as session:
        address = f"{url}/v1/queues/{queue}/publish"
        kind = frame_peers.ProducerPeer
        peer = await frame_peers.connect(session, address, token, kind=kind, layout=layout)
        await peer.send(frames.ProducerHello("broken"))
        await peer.expect(frames.ProducerWelcome)
        partition = layout.partition_for(KEY)
        data = batch.encode([GARBAGE] * count, [slot_of(KEY)] * count)
        frame = frames.Publish(1, partition.generation, partition.index, 0, 0)
        await peer.send(frame, data)
        await peer.expect(frames.Published)
        await peer.close()
    return partition.index
