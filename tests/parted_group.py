"""A group of the type KeyShared as its broker shows it: two partitions of four parts each."""

from partq.core.layout import Layout
from partq.wire.calls.group.parts import PartsDetail
from partq.wire.calls.state import (
    BrokerAnswer,
    BrokerState,
    FlowDetail,
    GroupDetail,
    ListedMember,
    PartitionDetail,
    Picture,
)
from partq.wire.layout_record import ranges_form

EVEN = ([0, 0, 0, 0], [1, 1, 1, 1])
"""By partition the members of the parts, `a` or `b`."""


def parted_picture(hash_range="Balanced", owners=EVEN, bound="ab"):
    """Return the group; `owners`: of each partition, -1 for nobody."""
    layout = Layout.first(2)
    partitions = {
        str(partition): PartitionDetail(
            broker_epoch=7,
            held_s=60,
            end=9,
            groups={
                "workers": GroupDetail(
                    member="",
                    epoch=3,
                    attempt=0,
                    is_bound=False,
                    state="Ready",
                    lag=2,
                    parts=PartsDetail(
                        members=["a", "b"],
                        bound=["a" in bound, "b" in bound],
                        of=list(places),
                        attempts=[5] * 4,
                    ),
                )
            },
        )
        for partition, places in zip(layout.partitions(), owners, strict=True)
    }
    flows = [
        FlowDetail(group="workers", member=member, incarnation="i", bound_s=60) for member in bound
    ]
    state = BrokerState("b-0", "i", partitions, flows, [])
    return Picture(
        now_ms=1,
        queue_spec={},
        group_spec={"type": "KeyShared", "keyShared": {"parts": 4, "hashRange": hash_range}},
        partitions=[*partitions],
        members={member: ListedMember("10.0.0.1", None) for member in "ab"},
        heirs={},
        assignment={},
        handoffs={},
        past={},
        waiting={},
        brokers={"b-0": BrokerAnswer(state)},
        slots=ranges_form({each: layout.first_slots(each) for each in layout.partitions()}),
    )
