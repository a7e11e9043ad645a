"""What happens to a simulated cluster, and when: drawn from a seed, and nothing else."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

from partq.core.group.planner import GroupType
from partq.core.group.standby import StandbyPolicy
from partq.core.parts.hash_ranges import HashRange

START_S: Final = 0.7
"""Before this nothing goes wrong: the cluster comes up, and hands out its partitions."""
SHARE: Final = 0.5
"""Of the kinds of faults, those that one seed has."""
SECOND_SHARE: Final = 0.3
"""Of the seeds, those with a second group: it costs as much as a pod."""
CHOOSING_EACH: Final = 5
"""Of so many seeds one has pods that choose their partitions, if its type can have that."""
_HASH_RANGES: Final = (HashRange.BALANCED, *(each for each in HashRange if each != "Sticky"))
"""Members that declare ranges are not drawn."""
AUDITED_EACH: Final = 7
"""Of so many seeds one has brokers that keep an audit record."""
RESCALED_EACH: Final = 8
"""Of so many seeds one changes the partition count."""
MAX_RESCALES: Final = 6
WHOLE_RESET_SHARE: Final = 0.4
"""Of those seeds, the ones in which a group is reset in all partitions."""
MAX_WHOLE_RESETS: Final = 3
ROLLBACK_SHARE: Final = 0.25
"""Of those seeds, the ones in which the store forgets what it has written around a change."""
LAYOUT_ROLLBACK_SHARE: Final = 0.3
"""Of those, the ones in which it forgets the layout alone."""
IDLE_SHARE: Final = 0.3
"""Of those seeds, the ones with a group that stands still: it costs little."""
KEYED_SHARE: Final = 0.3
"""Of the seeds, those whose groups keep the order of each key alone."""
PARTS_SHARE: Final = 0.3
"""Of the seeds of the type Partitioned, those of the type KeyShared in its place."""
TURNS_SHARE: Final = 0.12
"""Of those that are left, the ones of the type Shared."""
SESSIONS_SHARE: Final = 0.14
"""Of those that are left then, the ones of the type Session."""
SESSION_STATES_SHARE: Final = 0.6
"""Of the seeds with sessions, those with states of them."""
SPAN_SHARE: Final = 0.2
"""Of the seeds whose groups have the order Key, those whose span is narrow."""
STATES_SHARE: Final = 0.3
"""Of the seeds whose groups have an order, those whose applications leave states of keys."""
LETTERS_SHARE: Final = 0.3
"""Of the seeds, those with a queue for dead letters: it costs as much as a broker."""
WIDE: Final = 20_000
"""More offsets than any partition has."""
MEAN_GAP_S: Final = 0.12
"""Between two events."""
TAIL_S: Final = 1.0
"""How long after the last event a fault may last: what is quiet costs time and shows little."""


EventArgs = dict[str, Any]
"""What an event is done with, by the names that its kind has in `_KINDS`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens."""

    at: float
    """Simulated seconds since the start."""
    kind: str
    args: EventArgs = field(default_factory=dict)

    def __str__(self) -> str:
        args = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at:7.3f} s  {self.kind} {args}".rstrip()


@dataclass(frozen=True, slots=True)
class Setting:
    """What a cluster is made of."""

    partition_count: int
    broker_count: int
    pod_count: int
    delay_s: float
    """The rebalance delay."""
    max_handoff_s: float
    is_aware: bool
    """The coordinator hears of pods; else every loss waits the delay (policy Timer)."""
    work_s: float
    """How long an application works on a message, at most."""
    group_type: GroupType
    """How the pods share the partitions."""
    pull_share: float
    """Of the pods, those that pull by HTTP."""
    has_second: bool = False
    """There is a second group, of one slow pod."""
    nack_order: str = "Ordered"
    """What is redelivered when a message is given back: all behind it as well, what of its key is
    behind it, or it alone."""
    nack_s: float = 0.05
    """How long a message waits that was given back."""
    max_parked_keys: int = 1024
    """Of the order Key: how many keys of a partition may wait while the others go on."""
    max_span: int = WIDE
    """Of the order Key: how far above the lowest open message others are sent."""
    on_exhausted: str = "Skip"
    """Of the order Key, with a queue for dead letters: what becomes of the key of a message that
    failed too often."""
    ack_timeout_s: float = 0.0
    """How long an application may process a message, in seconds; 0: without limit."""
    has_states: bool = False
    """Applications leave a state of each key, and read it at the next message of the key."""
    has_letters: bool = False
    """There is a queue for dead letters."""
    max_redeliveries: int = 1
    """After which a message becomes a dead letter."""
    takes_expired: bool = False
    """What outlives its time to live becomes a dead letter, too."""
    is_audited: bool = False
    """The brokers keep an audit record."""
    standby: StandbyPolicy = StandbyPolicy.AT_ONCE
    """Whether those that stand by wait for a lost member, too."""
    is_client_assigned: bool = False
    """The pods choose their partitions themselves; of the type Partitioned alone."""
    priorities: tuple[int, ...] = (0,)
    """Of the pods in turn, in a group of the type Failover or Exclusive."""
    has_idle: bool = False
    """There is a third group, which has no pod before the end."""
    parts: int = 4
    """Of the type KeyShared: into how many each partition is cut."""
    hash_range: HashRange = HashRange.BALANCED
    """Of the type KeyShared: how they are shared out."""
    lock_s: float = 2.0
    """Of the type Session: how long a lock lasts without a renewal."""
    has_uids: bool = True
    """Groups have the uid of a resource, as on Kubernetes; the embedded runtime gives them none."""

    def priority_of(self, member: str) -> int:
        """Return the priority of `pod-N`; members of groups without standbys have none."""
        name, _, number = member.rpartition("-")
        if name != "pod" or self.group_type.is_dealt:
            return 0
        return self.priorities[int(number) % len(self.priorities)]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cluster and what happens to it."""

    seed: int
    setting: Setting
    events: tuple[Event, ...]

    def lines(self) -> list[str]:
        """Return the schedule as people read it."""
        return [f"seed {self.seed}: {self.setting}", *map(str, self.events)]


Draw = Callable[[random.Random], dict[str, Any]]


def _some(rng: random.Random) -> int:
    return rng.randrange(6)


def _long(rng: random.Random) -> float:
    """Return a time that is sometimes above the lease and the length of a pause."""
    return round(rng.choice((0.1, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0)) * rng.uniform(0.7, 1.2), 3)


def _short(rng: random.Random) -> float:
    return round(rng.uniform(0.02, 1.5), 3)


def _draw_exhausted(rng: random.Random) -> str:
    return rng.choice(("Skip", "Block", "Quarantine"))


_KINDS: Final[dict[str, tuple[int, Draw]]] = {
    "publish": (
        20,
        lambda rng: {"count": rng.randrange(2, 12), "gap_s": rng.choice((0.0, 0.02, 0.1, 0.3))},
    ),
    "post": (4, lambda rng: {"count": rng.randrange(1, 3)}),
    "broker_kill": (
        5,
        lambda rng: {"which": _some(rng), "for_s": _short(rng), "is_silent": rng.random() < 0.3},
    ),
    "broker_end": (2, lambda rng: {"which": _some(rng), "for_s": 1.0 + _short(rng)}),
    "broker_freeze": (4, lambda rng: {"which": _some(rng), "for_s": _long(rng)}),
    "pod_start": (7, lambda rng: {}),
    "pod_crash": (5, lambda rng: {"which": _some(rng), "for_s": _short(rng)}),
    "pod_end": (6, lambda rng: {"which": _some(rng), "grace_s": _long(rng)}),
    "pod_vanish": (2, lambda rng: {"which": _some(rng), "is_silent": rng.random() < 0.5}),
    "pod_freeze": (4, lambda rng: {"which": _some(rng), "for_s": _long(rng)}),
    "rollout": (
        3,
        lambda rng: {
            "is_surge": rng.random() < 0.5, "ready_s": round(rng.uniform(0.05, 0.5), 3),
            "grace_s": _long(rng), "for_s": _long(rng),
        },
    ),
    "coordinator_kill": (4, lambda rng: {"for_s": _short(rng)}),
    "coordinator_freeze": (
        4,
        lambda rng: {"for_s": _long(rng), "has_second": rng.random() < 0.6},
    ),
    "redis_kill": (2, lambda rng: {"for_s": _short(rng)}),
    "redis_rollback": (1, lambda rng: {"for_s": _short(rng), "lost_s": _short(rng)}),
    "redis_stall": (2, lambda rng: {"for_s": _short(rng)}),
    "redis_clock": (2, lambda rng: {"by_s": rng.choice((-30.0, -2.0, 2.0, 30.0))}),
    "cut": (
        5,
        lambda rng: {
            "from": _some(rng), "to": _some(rng), "for_s": _long(rng),
            "is_both": rng.random() < 0.6,
        },
    ),
    "late": (
        5,
        lambda rng: {
            "who": _some(rng), "lane": rng.randrange(4), "for_s": _short(rng),
            "late_s": _short(rng),
        },
    ),
    "group_life": (
        3,
        lambda rng: {
            "which": _some(rng), "for_s": _short(rng), "is_one": rng.random() < 0.4,
        },
    ),
    "reset": (
        3,
        lambda rng: {
            "which": rng.randrange(8), "to": rng.choice(("earliest", "latest", "offset")),
            "share": round(rng.random(), 2), "is_forced": rng.random() < 0.8,
        },
    ),
    "expire": (2, lambda rng: {"ttl_s": rng.choice((0.2, 0.5, 1.0)), "for_s": _long(rng)}),
    "quota": (2, lambda rng: {"bytes": rng.choice((100, 400, 1000)), "for_s": _long(rng)}),
    "store_full": (2, lambda rng: {"for_s": _long(rng), "is_hard": rng.random() < 0.5}),
    "nack": (5, lambda rng: {"count": rng.randrange(1, 5)}),
    "hang": (3, lambda rng: {"count": rng.randrange(1, 3), "for_s": _short(rng)}),
    "bad": (4, lambda rng: {"count": rng.randrange(1, 4)}),
    "slow": (3, lambda rng: {"who": _some(rng), "for_s": _long(rng)}),
    "storm": (
        4,
        lambda rng: {
            "for_s": _long(rng),
            "lost": rng.choice((0.0, 0.1, 0.3)),
            "repeated": rng.choice((0.0, 0.2)),
            "reset": rng.choice((0.0, 0.02, 0.1)),
            "slow": rng.choice((0.0, 0.1)),
        },
    ),
    "hostile": (4, lambda rng: {"count": rng.randrange(1, 6)}),
}  # fmt: skip


KINDS: Final = frozenset({*_KINDS, "rescale", "reset_all"})
"""What may happen."""


def _shorten(args: EventArgs, most_s: float) -> None:
    """Let what an event begins last no longer than that."""
    for name in args.keys() & {"for_s", "grace_s", "late_s"}:
        args[name] = round(min(args[name], most_s), 3)
    if "gap_s" in args:
        args["gap_s"] = round(min(args["gap_s"], most_s / args["count"]), 3)


def _with_rescales(drawn: Setting, events: list[Event], seed: int) -> tuple[Setting, list[Event]]:
    """Add changes of the partition count, and what is to meet them, to what was drawn without."""
    own = random.Random(f"{seed} rescale")  # noqa: S311  chance that can be repeated
    end = max((event.at for event in events), default=START_S) + MEAN_GAP_S
    changes: list[Event] = []
    for _ in range(own.randrange(1, MAX_RESCALES + 1)):
        # Some soon after another one: it aborts that, or comes before that is settled.
        begin = own.choice([START_S, START_S, *(event.at for event in changes)])
        at = min(end, begin + own.choice((0.02, 0.1, 0.3, end)) * own.random())
        changes.append(Event(round(at, 3), "rescale", {"to": own.randrange(1, 7)}))
    has_idle = own.random() < IDLE_SHARE
    if has_idle:
        drawn = replace(drawn, has_second=drawn.has_second or own.random() < SHARE)
    met = [event.at for event in changes]
    if own.random() < WHOLE_RESET_SHARE:
        for _ in range(own.randrange(1, MAX_WHOLE_RESETS + 1)):
            at = min(end, own.choice(met) + own.choice((0.1, 0.5, 1.0)) * own.random())
            args: dict[str, int | str] = {
                "which": own.randrange(6), "at": _some(own),
                "to": own.choice(("earliest", "latest")),
            }  # fmt: skip
            changes.append(Event(round(at, 3), "reset_all", args))
    if own.random() < ROLLBACK_SHARE and not any(event.kind == "redis_clock" for event in events):
        at = min(end, own.choice(met) + own.choice((0.05, 0.3, 1.0)) * own.random())
        fault = {"for_s": round(own.uniform(0.02, 0.5), 3), "lost_s": _short(own)}
        is_of_layout = own.random() < LAYOUT_ROLLBACK_SHARE
        changes.append(
            Event(round(at, 3), "redis_rollback", fault | {"is_of_layout": is_of_layout})
        )
    merged = sorted([*events, *changes], key=lambda event: event.at)
    return replace(drawn, has_idle=has_idle), merged


def _with_type(drawn: Setting, seed: int, given: GroupType | None) -> Setting:
    """Give the group the type that is given; else, in some seeds, one whose members share."""
    dealt = {GroupType.KEY_SHARED, GroupType.SHARED, GroupType.SESSION}
    is_free = drawn.group_type is GroupType.PARTITIONED and not drawn.is_client_assigned
    chosen = given if given in dealt else None
    if is_free and given is None:
        # Each by a chance apart, so that what was drawn before there was the next is still drawn.
        for each, name, share in (
            (GroupType.KEY_SHARED, "parts", PARTS_SHARE),
            (GroupType.SHARED, "shared type", TURNS_SHARE),
            (GroupType.SESSION, "session type", SESSIONS_SHARE),
        ):
            own = random.Random(f"{seed} {name}")  # noqa: S311  chance that can be repeated
            if chosen is None and own.random() < share:
                chosen = each
    if chosen is GroupType.KEY_SHARED:
        return _of_key_shared(drawn, seed)
    if chosen is GroupType.SHARED:
        return _of_shared(drawn, seed)
    return _of_session(drawn, seed) if chosen is GroupType.SESSION else drawn


def _of_key_shared(drawn: Setting, seed: int) -> Setting:
    own = random.Random(f"{seed} parts")  # noqa: S311  chance that can be repeated
    own.random()  # whether it has this type
    return replace(
        drawn,
        group_type=GroupType.KEY_SHARED,
        is_client_assigned=False,
        nack_order="Key",
        pull_share=0.0,
        parts=own.choice((1, 2, 4, 8)),
        hash_range=own.choice(_HASH_RANGES),
        on_exhausted=_draw_exhausted(own) if drawn.has_letters else "Skip",
    )


def _of_shared(drawn: Setting, seed: int) -> Setting:
    own = random.Random(f"{seed} turns")  # noqa: S311  chance that can be repeated
    return replace(
        drawn,
        group_type=GroupType.SHARED,
        is_client_assigned=False,
        nack_order="Free",
        nack_s=own.choice((0.05, 0.05, 0.4, 2.0)),
        max_parked_keys=1024,
        on_exhausted="Skip",
        pull_share=0.0,
        max_span=own.choice((WIDE, WIDE, WIDE, 4, 12)),
    )


def _of_session(drawn: Setting, seed: int) -> Setting:
    own = random.Random(f"{seed} sessions")  # noqa: S311  chance that can be repeated
    return replace(
        drawn,
        group_type=GroupType.SESSION,
        is_client_assigned=False,
        is_audited=False,
        nack_order="Key",
        pull_share=0.0,
        on_exhausted="Skip",
        lock_s=own.choice((1.0, 2.0, 5.0)),
    )


def draw_schedule(
    seed: int,
    event_count: int,
    *,
    only: Collection[str] | None = None,
    has_rescales: bool | None = None,
    **setting: Any,
) -> Schedule:
    """Return the schedule of a seed; the same arguments give the same one, on every machine.

    Args:
        seed: which one.
        event_count: how many events, beside changes of the partition count.
        only: the kinds of faults that it has; None: drawn.
        has_rescales: the partition count changes; None: as drawn, or as `only` says.
        setting: fields of `Setting` that are given, not drawn.
    """
    rng = random.Random(seed)  # noqa: S311  chance that can be repeated
    drawn = Setting(
        partition_count=rng.randrange(1, 5),
        broker_count=rng.choice((1, 2, 2, 2, 3)),
        pod_count=rng.randrange(1, 4),
        delay_s=rng.choice((0.0, 0.5, 1.0, 2.0)),
        max_handoff_s=rng.choice((0.0, 0.2, 1.0, 2.0)),
        is_aware=rng.random() < 0.7,
        work_s=rng.choice((0.0, 0.03, 0.03, 0.4)),
        group_type=rng.choices(
            (GroupType.PARTITIONED, GroupType.EXCLUSIVE, GroupType.FAILOVER), (4, 1, 1)
        )[0],
        pull_share=rng.choice((0.0, 0.0, 0.0, 0.0, 0.5, 1.0)),
        has_second=rng.random() < SECOND_SHARE,
        nack_order=rng.choice(("Ordered", "Ordered", "Free")),
        ack_timeout_s=rng.choice((0.0, 0.0, 0.3)),
        has_letters=rng.random() < LETTERS_SHARE,
        max_redeliveries=rng.choice((0, 1, 1, 2)),
        takes_expired=rng.random() < 0.5,
        has_uids=seed % 3 > 0,
    )
    # Separately, so that what was drawn by a seed before this existed is still drawn.
    own = random.Random(f"{seed} standby")  # noqa: S311  chance that can be repeated
    drawn = replace(
        drawn,
        standby=own.choice(list(StandbyPolicy)),
        priorities=own.choice(((0,), (0, 1), (1, 0), (0, 0, 2))),
    )
    if only is None and drawn.group_type is GroupType.PARTITIONED:
        # By the number of the seed: the rest of each seed stays as it was.
        drawn = replace(drawn, is_client_assigned=seed % CHOOSING_EACH == CHOOSING_EACH - 1)
    if only is None:
        drawn = replace(drawn, is_audited=seed % AUDITED_EACH == AUDITED_EACH - 1)
    own = random.Random(f"{seed} keyed")  # noqa: S311  chance that can be repeated
    if only is None and own.random() < KEYED_SHARE:
        drawn = replace(
            drawn,
            nack_order="Key",
            nack_s=own.choice((0.05, 0.4, 2.0)),
            max_parked_keys=own.choice((1024, 1024, 1, 2)),
            on_exhausted=_draw_exhausted(own) if drawn.has_letters else "Skip",
        )
    if only is None:
        drawn = _with_type(drawn, seed, setting.get("group_type"))
    own = random.Random(f"{seed} span")  # noqa: S311  chance that can be repeated
    if only is None and drawn.nack_order == "Key" and own.random() < SPAN_SHARE:
        drawn = replace(drawn, max_span=own.choice((4, 8, 12)))
    own = random.Random(f"{seed} states")  # noqa: S311  chance that can be repeated
    share = SESSION_STATES_SHARE if drawn.group_type is GroupType.SESSION else STATES_SHARE
    if only is None and drawn.nack_order != "Free" and own.random() < share:
        # A pulling application leaves none. What expires may have been finished, and not counted.
        drawn = replace(drawn, has_states=True, has_letters=False, pull_share=0.0)
    if not drawn.is_aware:
        # By flows alone a pulling member is missed for half a minute: it would cost too much.
        drawn = replace(drawn, pull_share=0.0)
    # Each seed leaves out half of the faults: what all of them at once would hide shows.
    kinds = [kind for kind in _KINDS if kind == "publish" or rng.random() < SHARE]
    if only is not None:
        kinds = [kind for kind in _KINDS if kind == "publish" or kind in only]
    if drawn.has_states and "expire" in kinds:
        kinds.remove("expire")
    if "redis_rollback" in kinds and "redis_clock" in kinds:
        # A store that forgets *and* whose clock goes back draws epochs twice: beyond what is
        # promised (docs/simulator.md).
        kinds.remove(rng.choice(("redis_rollback", "redis_clock")))
    weights = [_KINDS[kind][0] for kind in kinds]
    events = []
    at = START_S
    for _ in range(event_count):
        at += rng.expovariate(1 / MEAN_GAP_S)
        kind = rng.choices(kinds, weights)[0]
        events.append(Event(round(at, 3), kind, _KINDS[kind][1](rng)))
    for event in events:
        _shorten(event.args, at + TAIL_S - event.at)
    if has_rescales is None:
        is_due = seed % RESCALED_EACH == RESCALED_EACH - 2
        has_rescales = is_due if only is None else "rescale" in only
    if has_rescales:
        drawn, events = _with_rescales(drawn, events, seed)
    return Schedule(seed, replace(drawn, **setting), tuple(events))
