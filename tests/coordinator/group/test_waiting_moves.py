"""Plans under a budget, played to their end: nothing too much, nothing left, no change of mind."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.coordinator.group.move_history import MoveHistory
from partq.coordinator.group.waiting_moves import WaitingMoves
from partq.core.group.disruption_budget import MINUTE_MS, DisruptionBudget
from partq.core.group.membership import assess
from partq.core.group.observation import FlowSeen, GroupObservation, LossSeen, PartitionOwnership
from partq.core.group.planner import GroupRules, may_be_balanced, plan
from partq.core.group.records import MAX_PAST_MOVES, PastMove
from partq.core.model import BrokerId, Epoch, MemberId, PartitionId

B0 = BrokerId("b-0")
LONG_MS = 60_000_000
LOOK_MS = 500
MEMBERS = [MemberId(name) for name in "abcdef"]


@dataclass
class Play:
    """A group whose coordinator looks every half second; each handoff takes some looks."""

    owned: dict
    bound: set
    rules: GroupRules
    is_complete: bool = True
    lost: set = field(default_factory=set)
    leaving: set = field(default_factory=set)
    moves: MoveHistory = field(default_factory=lambda: MoveHistory({}, 0, 0))
    waiting: WaitingMoves = field(default_factory=lambda: WaitingMoves({}, 0, 0))
    now_ms: int = 10_000_000
    """The coordinator's own clock."""
    ahead_ms: int = 1_800_000_000_000
    """How far the store's clock is ahead of it."""
    running: dict = field(default_factory=dict)
    """Partition → its move, and when it is over."""
    journal: dict = field(default_factory=dict)
    started: list = field(default_factory=list)
    """(when, how many were under way with it, the move)"""
    done: list = field(default_factory=list)
    waits: list = field(default_factory=list)
    """At each look: partition → target of what waits."""

    def observation(self):
        partitions = {
            partition: PartitionOwnership(
                partition=partition,
                broker=B0,
                held_ms=LONG_MS,
                member=member,
                epoch=Epoch(1),
                is_bound=member in self.bound,
            )
            for partition, member in self.owned.items()
        }
        flows = [
            FlowSeen(
                member=member,
                broker=B0,
                incarnation="i",
                age_ms=LONG_MS,
                is_leaving=member in self.leaving,
            )
            for member in self.bound
        ]
        losses = [LossSeen(member=member, broker=B0, age_ms=LONG_MS) for member in self.lost]
        return GroupObservation(
            partitions=partitions, flows=flows, losses=losses, is_complete=self.is_complete
        )

    def look(self, takes_ms):
        for partition, (move, ends_ms) in list(self.running.items()):
            if self.now_ms >= ends_ms:
                del self.running[partition]
                self.owned[partition] = move.target
                self.done.append((self.now_ms, move))
                past = PastMove(
                    at_ms=self.now_ms + self.ahead_ms,
                    source=move.ownership.member,
                    target=move.target,
                    attempt=len(self.done),
                    trigger=move.trigger,
                    evidence="",
                    forced=move.forced,
                    pause_ms=1,
                )
                self.moves.note(partition, past, self.now_ms)
        observation = self.observation()
        assessment = assess(observation, self.rules.membership)
        under_way = {p: move.target for p, (move, _) in self.running.items()}
        planned = plan(observation, assessment, self.rules, under_way, self.waiting.promised)
        is_judged = may_be_balanced(observation, assessment, self.rules)
        paused = {p for p, (m, _) in self.running.items() if m.ownership.member is not None}
        moves = self.waiting.split(
            planned,
            planned,
            self.rules.budget,
            self.moves.budget_use(len(paused), self.now_ms),
            under_way=under_way,
            paused=paused,
            is_judged=is_judged,
            now_ms=self.now_ms,
            store_ms=self.now_ms + self.ahead_ms,
        )
        for move in moves:
            self.running[move.partition] = move, self.now_ms + takes_ms
        paused_count = sum(m.ownership.member is not None for m, _ in self.running.values())
        self.started += [(self.now_ms, paused_count, move) for move in moves]
        self.waits.append({p: each.target for p, each in self.waiting.waiting.items()})
        past, waiting = self.moves.unwritten, self.waiting.unwritten
        self.journal |= past
        self.moves.note_written(past)
        if waiting is not None:
            self.waiting.note_written(waiting)
        assert not self.moves.unwritten
        assert self.waiting.unwritten is None
        self.now_ms += LOOK_MS

    def after(self, ages_ms):
        """Return the same after moves that were so long ago."""
        for number, (partition, age_ms) in enumerate(zip(self.owned, ages_ms, strict=False)):
            if age_ms is not None:
                past = moved_lately(self.now_ms + self.ahead_ms, age_ms, number)
                self.moves.note(partition, past, self.now_ms - age_ms)
        return self

    def restart(self):
        """Another coordinator takes over; what runs is resumed from its own records."""
        store_ms = self.now_ms + self.ahead_ms
        self.moves = MoveHistory(self.journal, store_ms, self.now_ms)
        self.waiting = WaitingMoves(self.waiting.waiting, store_ms, self.now_ms)

    def finish(self, takes_ms=0, *, restarts=False):
        for _ in range(4_000):
            self.look(takes_ms)
            if not self.running and not self.waiting.waiting:
                return
            if restarts:
                self.restart()
        raise AssertionError(f"still waiting: {self.waiting.waiting}")


def owned(*members):
    return {PartitionId(1, index): member for index, member in enumerate(members)}


def moved_lately(now_ms, age_ms, attempt):
    return PastMove(
        at_ms=now_ms - age_ms,
        source=MEMBERS[0],
        target=MEMBERS[1],
        attempt=-attempt,
        trigger="member_left",
        evidence="said_leaving",
        forced=None,
        pause_ms=3,
    )


budgets = st.builds(
    DisruptionBudget,
    max_paused=st.integers(0, 3),
    max_per_minute=st.integers(0, 4),
    min_interval_ms=st.sampled_from([0, 5_000, 90_000]),
)
groups = st.lists(st.sampled_from(MEMBERS[:4]), min_size=1, max_size=20)
histories = st.lists(st.one_of(st.none(), st.integers(0, 80_000)), min_size=20, max_size=20)
"""How long ago each partition moved, which decides the order in which they may move again."""
strategies = st.sampled_from(["sticky", "sticky", "range", "modulo", "failover"])


def most_in_a_minute(instants):
    return max(
        (sum(at - MINUTE_MS < each <= at for each in instants) for at in instants), default=0
    )


@given(
    groups, st.sets(st.sampled_from(MEMBERS), min_size=1), histories, budgets, strategies, st.data()
)
def test_nothing_is_too_much_and_everything_moves_in_the_end(
    held, newcomers, lately, budget, how, data
):
    """Members join, and the coordinator is replaced now and then."""
    rules = GroupRules(strategy=how, budget=budget)
    bound = {*held, *newcomers}
    free = Play(owned(*held), bound, replace(rules, budget=DisruptionBudget()))
    free.finish()
    play = Play(owned(*held), bound, rules).after(lately)
    takes_ms = data.draw(st.sampled_from([0, 1_200, 20_000]), "a handoff takes")
    for _ in range(data.draw(st.integers(0, 4), "restarts")):
        for _ in range(data.draw(st.integers(1, 150), "looks")):
            play.look(takes_ms)
        play.restart()
    play.finish(takes_ms)

    assert play.owned == free.owned, "what a plan without a budget makes in one go"
    assert max(Counter(move.partition for _, move in play.done).values(), default=1) == 1
    assert len(play.done) == len(free.done)
    if budget.max_paused:
        assert all(count <= budget.max_paused for _, count, _ in play.started)
    if budget.max_per_minute:
        assert most_in_a_minute([at for at, _ in play.done]) <= budget.max_per_minute


@given(groups, st.sets(st.sampled_from(MEMBERS), min_size=1), histories, budgets)
def test_what_waits_never_changes_its_target(held, newcomers, lately, budget):
    play = Play(owned(*held), {*held, *newcomers}, GroupRules(budget=budget)).after(lately)
    play.finish(1_200, restarts=True)
    targets = {}
    for waiting in play.waits:
        for partition, target in waiting.items():
            assert targets.setdefault(partition, target) == target
    assert all(play.owned[partition] == target for partition, target in targets.items())
    for earlier, later in pairwise(play.waits):
        assert later.items() <= earlier.items()


@given(groups, budgets, st.sampled_from(["lost", "leaving"]), st.data())
def test_what_cannot_wait_goes_at_once_whatever_waits(held, budget, how, data):
    """In the middle of a budgeted rebalance one member is lost, or leaves."""
    play = Play(owned(*held), {*held, *MEMBERS[4:]}, GroupRules(budget=budget))
    for _ in range(data.draw(st.integers(1, 30), "looks")):
        play.look(1_200)
    going = data.draw(st.sampled_from(sorted(play.bound)), "who goes")
    if how == "lost":
        play.bound.discard(going)
        play.lost.add(going)
    else:
        play.leaving.add(going)
    has = {p for p, member in play.owned.items() if member == going} - play.running.keys()
    play.look(1_200)
    started = {move.partition for at, _, move in play.started if at == play.now_ms - LOOK_MS}
    assert has <= started
    play.finish(1_200)
    assert going not in play.owned.values()
    sizes = Counter(dict.fromkeys(play.bound - {going}, 0))
    sizes.update(play.owned.values())
    assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.mark.parametrize(
    "budget", [DisruptionBudget(max_paused=1), DisruptionBudget(max_per_minute=1)]
)
def test_a_promise_to_who_has_gone_is_none(budget):
    """Of 8 partitions C and D are to get 2 each; one of them leaves before it has any."""
    a, b, c, d = MEMBERS[:4]
    play = Play(owned(*[a, b] * 4), {a, b, c, d}, GroupRules(budget=budget))
    play.look(0)
    (first,) = play.running.values()
    target = first[0].target
    assert Counter(play.waiting.promised.values()) == {c: 2, d: 2}
    play.bound = {a, b, target}
    play.finish()
    assert sorted(Counter(play.owned.values()).values()) == [2, 3, 3]
    assert len(play.done) == 2


def test_a_promise_makes_way_where_what_nobody_has_serves_as_well():
    """C is to get 2 of 8; then B is lost, and all that it had is C's share: A moves nothing."""
    a, b, c = MEMBERS[:3]
    budget = DisruptionBudget(min_interval_ms=60_000)
    play = Play(owned(*[a, b] * 4), {a, b, c}, GroupRules(budget=budget)).after([1] * 8)
    play.look(0)
    assert Counter(play.waiting.promised.values()) == {c: 2}
    assert not play.running
    play.bound.discard(b)
    play.lost.add(b)
    play.finish()
    assert Counter(play.owned.values()) == {a: 4, c: 4}
    assert {move.ownership.member for _, move in play.done} == {b}


def test_a_promise_ends_with_the_need_for_it():
    """While a broker is silent, what B had goes to C, and 4 and 3 are balance enough."""
    a, b, c = MEMBERS[:3]
    budget = DisruptionBudget(min_interval_ms=60_000)
    play = Play(owned(a, a, a, a, b, b, b), {a, b, c}, GroupRules(budget=budget)).after([1] * 7)
    play.look(0)
    assert Counter(play.waiting.promised.values()) == {c: 2}
    play.is_complete = False
    play.look(0)
    assert Counter(play.waiting.promised.values()) == {c: 2}, "it holds while nothing is known"
    play.bound.discard(b)
    play.lost.add(b)
    for _ in range(3):
        play.look(0)
    assert Counter(play.owned.values()) == {a: 4, c: 3}
    play.is_complete = True
    play.finish()
    assert Counter(play.owned.values()) == {a: 4, c: 3}


def test_a_partition_stays_for_its_interval_after_a_forced_move():
    """Whoever lost it to a failure does not get it back at once."""
    a, b = MEMBERS[:2]
    budget = DisruptionBudget(min_interval_ms=60_000)
    play = Play(owned(a, a, b, b), {a}, GroupRules(budget=budget), lost={b})
    play.finish()
    lost_at_ms = [at for at, _ in play.done]
    assert set(play.owned.values()) == {a}
    play.lost.clear()
    play.bound.add(b)
    play.restart()
    play.finish()
    assert Counter(play.owned.values()) == {a: 2, b: 2}
    back = [(at, move.partition.index) for at, move in play.done[2:]]
    assert all(at < max(lost_at_ms) + 2_000 for at, index in back if index < 2)
    assert all(at >= min(lost_at_ms) + 60_000 for at, index in back if index >= 2)


@pytest.mark.parametrize("jump_ms", [-3_600_000, -30_000, 30_000, 3_600_000])
@pytest.mark.parametrize(
    ("budget", "least_ms"),
    [
        (DisruptionBudget(min_interval_ms=60_000), 60_000),
        (DisruptionBudget(max_per_minute=2), MINUTE_MS),
    ],
    ids=["interval", "per minute"],
)
def test_what_waits_for_time_waits_as_long_when_the_store_s_clock_jumps(budget, least_ms, jump_ms):
    a, b = MEMBERS[:2]
    play = Play(owned(a, a, b, b), {a}, GroupRules(budget=budget), lost={b})
    play.finish()
    lost_at_ms = max(at for at, _ in play.done)
    play.lost.clear()
    play.bound.add(b)
    play.rules = replace(play.rules, budget=replace(budget, max_paused=1))
    for _ in range(3):
        play.look(0)
    play.ahead_ms += jump_ms
    play.finish()
    later = [at for at, _ in play.done if at > lost_at_ms + 10_000]
    assert later
    assert min(later) >= lost_at_ms + least_ms - LOOK_MS
    assert play.waiting.next_ms(play.now_ms) is None


def test_a_past_that_lies_ahead_counts_no_more():
    """The store's clock was set back while no coordinator ran: it may not come there for years."""
    ahead_ms = 3_600_000
    a, b = MEMBERS[:2]
    rules = GroupRules(budget=DisruptionBudget(max_per_minute=1, min_interval_ms=86_400_000))
    play = Play(owned(a, a), {a, b}, rules)
    play.journal = {p: (moved_lately(play.now_ms + play.ahead_ms, 0, 1),) for p in play.owned}
    play.ahead_ms -= ahead_ms
    play.restart()
    play.look(0)
    assert len(play.running) == 1


def test_the_instant_that_a_move_waits_for_is_not_written_again_at_each_look():
    a, b = MEMBERS[:2]
    rules = GroupRules(budget=DisruptionBudget(min_interval_ms=60_000))
    play = Play(owned(a, a), {a, b}, rules).after([1, 1])
    play.look(0)
    (waiting,) = {each.until_ms for each in play.waiting.waiting.values()}
    for jitter_ms in (3, -7, 20):
        play.ahead_ms += jitter_ms
        play.look(0)
        assert {each.until_ms for each in play.waiting.waiting.values()} == {waiting}
    play.ahead_ms += 30_000
    play.look(0)
    (moved,) = {each.until_ms for each in play.waiting.waiting.values()}
    assert abs(moved - waiting - 30_000) < 100


def test_the_first_owner_of_a_partition_starts_no_interval():
    a, b = MEMBERS[:2]
    play = Play(
        owned(None, None), {a}, GroupRules(budget=DisruptionBudget(min_interval_ms=3_600_000))
    )
    play.finish()
    play.bound.add(b)
    play.finish()
    assert Counter(play.owned.values()) == {a: 1, b: 1}


def test_moves_are_kept_and_kept_few():
    history = MoveHistory({}, 0, 0)
    partition = PartitionId(1, 0)
    moves = [moved_lately(0, 0, number) for number in range(MAX_PAST_MOVES + 3)]
    for move in [*moves, moves[-1]]:
        history.note(partition, move, 0)
    past = history.unwritten
    assert past == {partition: tuple(moves[-MAX_PAST_MOVES:])}
    history.note(partition, replace(moves[-1], attempt=99), 0)
    history.note_written(past)
    assert history.unwritten.keys() == {partition}, "one came while the others were written"
