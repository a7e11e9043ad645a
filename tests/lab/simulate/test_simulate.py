"""The simulator: seeds that hold, that replay, and what a failing one prints."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.core.group.planner import GroupType
from partq.core.model import PartitionId
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GROUP, SECOND
from partq.lab.simulate.oracle.forged_acks import MANY, undelivered_stop
from partq.lab.simulate.oracle.movement import Movement
from partq.lab.simulate.oracle.oracle import Oracle
from partq.lab.simulate.oracle.records import Records
from partq.lab.simulate.parallel import SeedOptions
from partq.lab.simulate.processes.coordinators import KEYS, LETTER_KEYS
from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule, run_seed
from partq.wire.calls.bodies import DrainItem
from tests.lab.simulate.choosing_mutations import CHOOSING_MUTATIONS
from tests.lab.simulate.mutations import MUTATIONS

SEEDS = range(40)
MAX_SEEDS = 80
"""Enough for each thing to happen in some of them."""


@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_every_invariant_holds(first):
    for seed in range(first, first + 20):
        outcome = run_seed(seed)
        assert outcome.violation is None, "\n".join(outcome.lines())


def test_what_was_sent_in_a_storm_arrives_after_it():
    """A message that waits behind it is none that nothing delays."""
    outcome = run_seed(8001, 5)
    assert outcome.violation is None, "\n".join(outcome.lines())


def test_what_was_over_stays_over_when_the_clock_is_set_back():
    """A broker may judge a time to live before, and its dead letter arrive after."""
    outcome = run_seed(6009, 20)
    assert outcome.violation is None, "\n".join(outcome.lines())


@pytest.mark.parametrize("seed", [1372, 5257, 5450])
def test_a_member_that_is_listed_at_the_last_moment_is_bound_once(seed):
    """Its broker had waited for a coordinator, almost as long as its lease is."""
    outcome = run_schedule(SeedOptions(4, assignment="Client").schedule(seed))
    assert outcome.violation is None, "\n".join(outcome.lines())


def test_things_do_happen():
    outcomes = []
    for seed in range(1012, 1012 + MAX_SEEDS):
        outcomes.append(run_seed(seed))
        if (
            sum(outcome.handed for outcome in outcomes) > 100
            and sum(outcome.commits for outcome in outcomes) > 30
            and any(outcome.duplicates for outcome in outcomes)
            and any(outcome.recovery_s > 1.0 for outcome in outcomes)
        ):
            return
    pytest.fail(f"not all of it in {MAX_SEEDS} seeds")


def test_a_seed_is_the_same_history_in_every_process():
    """In 5239 a broker finds two groups at once, whose order must not be that of a set."""
    program = (
        "from partq.lab.simulate.parallel import SeedOptions\n"
        "from partq.lab.simulate.trial import run_schedule, run_seed\n"
        "print([run_seed(seed).digest for seed in range(100, 103)])\n"
        "chosen = SeedOptions(20, assignment='Client').schedule(5239)\n"
        "print(run_schedule(chosen).digest)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,  # it takes a whole core for some seconds, and a busy machine has none
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_a_schedule_is_drawn_from_its_seed_alone():
    assert draw_schedule(7, 50) == draw_schedule(7, 50)
    assert draw_schedule(7, 50).events != draw_schedule(8, 50).events
    assert len(draw_schedule(7, 50).events) == 50


def test_some_seeds_keep_an_audit_record_and_are_the_same_otherwise():
    audited = [seed for seed in range(21) if draw_schedule(seed, 5).setting.is_audited]
    assert audited == [6, 13, 20]
    for seed in range(7):
        drawn, plain = draw_schedule(seed, 5), draw_schedule(seed, 5, is_audited=False)
        assert replace(drawn, setting=replace(drawn.setting, is_audited=False)) == plain
        assert not draw_schedule(seed, 5, only={"nack"}).setting.is_audited


@pytest.mark.parametrize(
    ("seed", "events"),
    [
        pytest.param(18, 30, id="a nack is confirmed behind its step back"),
        pytest.param(19, 60, id="a forged ack of a redelivery that waits does not count"),
        pytest.param(61, 30, id="what waits for room in the store may be late"),
        pytest.param(193, 30, id="an ack of what was given back comes after the drain"),
        pytest.param(2659, 30, id="a pause is in force before its answer is recorded"),
        pytest.param(4256, 30, id="what waits to be redelivered is done meanwhile"),
        pytest.param(1585, 60, id="what was given back expires after the drain"),
    ],
)
def test_deliveries_that_wait_for_their_audit_record_keep_every_promise(seed, events):
    outcome = run_schedule(draw_schedule(seed, events, is_audited=True))
    assert outcome.violation is None, "\n".join(outcome.lines())


def test_only_what_the_store_has_forgotten_may_be_missing():
    watcher = Oracle(SimLoop(), random.Random(0))
    limits, fail = {GROUP: None, SECOND: None}, watcher.fail
    memory = MemoryRedis(lambda: 0.0)
    watcher.records = Records(memory, KEYS, LETTER_KEYS, [], limits, fail, lambda: 0.0, lambda: 0.0)
    watcher.records.done[GROUP].update({1, 3})
    watcher.records.done[SECOND].add(1)
    watcher.records.forgotten.add(2)
    watcher.confirmed.update({1: 1.0, 2: 1.5, 3: 2.0})
    assert watcher.missing() == {SECOND: [3]}


def test_an_ack_over_a_dead_letter_is_no_hostile_one():
    """A broker continues beyond what is done, so an ack up to there is of what was delivered."""
    assert undelivered_stop(3, 5, {1, 2}.__contains__) == 4
    assert undelivered_stop(3, 5, {3}.__contains__) == 5
    assert undelivered_stop(3, 5, {3, 4}.__contains__) == MANY
    assert undelivered_stop(MANY, 5, {3}.__contains__) == MANY


def test_a_dead_letter_that_waits_is_drained():
    """It became one after the broker had looked, and before it answered."""
    watcher = Oracle(SimLoop(), random.Random(0))
    memory, partition = MemoryRedis(lambda: 0.0), PartitionId(1, 0)
    clocks = (lambda: 0.0, lambda: 0.0)
    args = (memory, KEYS, LETTER_KEYS, [partition], {GROUP: None}, watcher.fail, *clocks)
    records = Records(*args)
    movement = Movement(records, GroupType.PARTITIONED, watcher.fail, lambda *_: True)
    watcher.follow(records, movement)
    facts = watcher.records.group_partitions["1.0"]
    facts.log.broker_epoch = 5
    item = DrainItem(partition="1.0", broker_epoch=5, epoch=7, attempt=1)
    answer = {"results": [{"partition": "1.0", "is_drained": True, "last_delivered": 0}]}
    broker = SimpleNamespace(owned={})
    answered = watcher.handoffs.called(broker, GROUP, "drain", SimpleNamespace(drains=[item]))
    facts.outbox = {8: 0}
    answered(answer)
    assert watcher.violation is None
    facts.outbox = {}
    answered(answer)
    assert watcher.violation.invariant == "E4"


def test_two_rollbacks_at_the_same_time():
    rollbacks = [Event(1.5, "redis_rollback", {"for_s": 0.1, "lost_s": s}) for s in (0.2, 0.4)]
    outcome = run_schedule(replace(draw_schedule(0, 0), events=tuple(rollbacks)))
    assert outcome.violation is None, "\n".join(outcome.lines())


def test_a_failing_seed_tells_what_was_done_and_what_was_wrong(monkeypatch):
    mutation = MUTATIONS[0]
    mutation.apply(monkeypatch)
    outcome = run_schedule(mutation.schedule(0))
    lines = outcome.lines()
    assert lines[0].startswith("seed 0: Setting(")
    assert any("hostile" in line for line in lines)
    assert "VIOLATED G2" in lines[-1]


def test_the_command_replays_one_seed(tmp_path):
    results = [tmp_path / "one.json", tmp_path / "two.json"]
    for result in results:
        answer = CliRunner().invoke(cli, ["simulate", "--seed", "5", "--json", str(result)])
        assert answer.exit_code == 0, answer.output
        assert "1 of 1 seeds of 20 events" in answer.output
    first, second = (json.loads(result.read_text(encoding="utf-8")) for result in results)
    assert first == second
    assert first["seeds"][0]["seed"] == 5


def test_the_command_runs_seeds_on_many_processes(tmp_path):
    results = [tmp_path / "one.json", tmp_path / "two.json"]
    for workers, result in zip(("1", "2"), results, strict=True):
        args = ["simulate", "--seed", "40", "--seeds", "4", "--workers", workers]
        answer = CliRunner().invoke(cli, [*args, "--json", str(result)])
        assert answer.exit_code == 0, answer.output
        assert "4 of 4 seeds" in answer.output
    first, second = (json.loads(result.read_text(encoding="utf-8")) for result in results)
    assert first == second


def test_every_tenth_seed_may_be_longer(tmp_path):
    result = tmp_path / "result.json"
    args = ["--seed", "17", "--seeds", "4", "--workers", "2", "--events", "3", "--long-events", "8"]
    answer = CliRunner().invoke(cli, ["simulate", *args, "--json", str(result)])
    assert answer.exit_code == 0, answer.output
    assert "4 of 4 seeds of 3 events, each tenth of 8, in" in answer.output
    found = json.loads(result.read_text(encoding="utf-8"))["seeds"]
    assert {each["seed"]: each["events"] for each in found} == {17: 3, 18: 3, 19: 8, 20: 3}
    assert [each["digest"] for each in found] == [
        run_seed(each["seed"], each["events"]).digest for each in found
    ]


def test_the_assignment_of_every_seed_can_be_said(tmp_path):
    result = tmp_path / "result.json"
    args = ["--seed", "3", "--seeds", "2", "--workers", "2", "--events", "2"]
    args += ["--assignment", "Client", "--json", str(result)]
    answer = CliRunner().invoke(cli, ["simulate", *args])
    assert answer.exit_code == 0, answer.output
    assert "2 of 2 seeds of 2 events, assignment Client, in" in answer.output
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found["assignment"] == "Client"
    given = {"is_client_assigned": True, "group_type": GroupType.PARTITIONED}
    assert [each["digest"] for each in found["seeds"]] == [
        run_schedule(draw_schedule(seed, 2, **given)).digest for seed in (3, 4)
    ]


def test_with_the_assignment_server_a_seed_keeps_its_type():
    for seed in range(20):
        drawn = draw_schedule(seed, 2)
        forced = SeedOptions(2, assignment="Server").schedule(seed)
        assert forced == replace(drawn, setting=replace(drawn.setting, is_client_assigned=False))


def test_the_command_ends_when_its_time_is_over():
    args = ["simulate", "--seeds", "100000", "--workers", "2", "--max-seconds", "1"]
    answer = CliRunner().invoke(cli, args)
    assert answer.exit_code == 0, answer.output
    ran = re.search(r"^(\d+) of 100000 seeds of 20 events", answer.output, re.MULTILINE)
    assert ran is not None, answer.output
    left = 100_000 - int(ran[1])
    last = f"CUT OFF by --max-seconds 1: {left} of 100000 seeds were not run"
    assert answer.output.splitlines()[-1] == last


def test_a_run_that_is_done_in_time_is_not_cut_off():
    answer = CliRunner().invoke(cli, ["simulate", "--seed", "5", "--max-seconds", "600"])
    assert answer.exit_code == 0, answer.output
    assert "1 of 1 seeds" in answer.output
    assert "CUT OFF" not in answer.output


def test_the_command_shows_the_schedule_of_a_seed_that_fails(monkeypatch):
    mutation = next(each for each in MUTATIONS if each.name == "an attempt is used again")
    mutation.apply(monkeypatch)
    answer = CliRunner().invoke(cli, ["simulate", "--seed", "3"])
    assert answer.exit_code == 1
    assert "VIOLATED attempts" in answer.output
    assert "again: partq simulate --seed 3 --events 20\n" in answer.output


def test_the_command_says_how_a_forced_seed_is_run_again(monkeypatch):
    mutation = next(each for each in CHOOSING_MUTATIONS if "draws no epoch" in each.name)
    mutation.apply(monkeypatch)
    args = ["--seed", "9", "--seeds", "2", "--workers", "1", "--assignment", "Client"]
    answer = CliRunner().invoke(cli, ["simulate", *args])
    assert answer.exit_code == 1
    assert "VIOLATED" in answer.output
    assert "--events 20 --assignment Client\n" in answer.output


def test_every_type_is_drawn_where_none_is_given():
    drawn = [draw_schedule(seed, 2).setting for seed in range(300)]
    assert {each.group_type for each in drawn} == set(GroupType)
    for each in drawn:
        if each.group_type is GroupType.SHARED:
            assert (each.nack_order, each.pull_share) == ("Free", 0.0)


def test_the_group_can_be_key_shared_in_every_seed():
    drawn = [SeedOptions(2, is_key_shared=True).schedule(seed).setting for seed in range(40)]
    assert {(each.group_type, each.nack_order) for each in drawn} == {(GroupType.KEY_SHARED, "Key")}
    assert not any(each.is_client_assigned for each in drawn)
    assert len({(each.parts, each.hash_range) for each in drawn}) > 4
    assert {each.on_exhausted for each in drawn} == {"Skip", "Block", "Quarantine"}


def test_the_group_can_have_sessions_in_every_seed():
    """Locks are taken, renewed, passed on and had back, and every invariant holds."""
    options = SeedOptions(20, is_session=True)
    drawn = [options.schedule(seed).setting for seed in range(40)]
    assert {(each.group_type, each.nack_order) for each in drawn} == {(GroupType.SESSION, "Key")}
    assert len({each.lock_s for each in drawn}) > 1
    effects = Counter()
    for seed in (7, 14, 26):
        outcome = run_schedule(options.schedule(seed))
        assert outcome.violation is None, "\n".join(outcome.lines())
        effects += outcome.effects
    for effect in ("accepted", "renewed", "closed", "lost", "passed on", "had back"):
        assert effects[f"session {effect}"], effect
