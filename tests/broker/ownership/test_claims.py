"""What a broker knows of the owners of partitions."""

import asyncio

from partq.broker.ownership.claims import Claims
from partq.core.model import PartitionId

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)


async def test_a_read_that_is_answered_late_does_not_bring_back_what_was_before():
    """It had begun before the one whose answer is known: new partitions had no owner then."""
    answers = []

    class Leases:
        async def read(self):
            answers.append(asyncio.get_running_loop().create_future())
            return await answers[-1]

    claims = Claims(
        Leases(), None, broker="b-0", clock=lambda: 0.0, owned=tuple, all_partitions=tuple,
        claim=None, is_valid=lambda: True, ttl_s=3.0,
    )  # fmt: skip
    early = asyncio.create_task(claims.refresh())
    late = asyncio.create_task(claims.refresh())
    await asyncio.sleep(0)
    answers[1].set_result(({}, {OLD: "b-0", NEW: "b-1"}))
    await late
    answers[0].set_result(({}, {OLD: "b-0"}))
    await early
    assert claims.owners == {OLD: "b-0", NEW: "b-1"}
