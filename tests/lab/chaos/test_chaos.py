"""One round of each fault, under load, through the command; `make chaos` runs many."""

import json
import random
import tempfile
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.lab import chaos as command
from partq.errors import UnavailableError
from partq.lab.chaos.faults import (
    CHOICES,
    FREEZE_S,
    GROUPS,
    LEASE_S,
    PLANS,
    Fault,
    FaultPlan,
    RoundLoad,
    drawn,
)
from partq.lab.chaos.rounds import Chaos, Round
from partq.lab.verdict.journal_rows import JOINED, DeliveredRow, HeldRow, PublishedRow
from partq.lab.verdict.judge import judge
from partq.lab.verdict.progress import RunProgress
from partq.lab.workload.stage import Stage
from partq.resources import group_document
from partq.resources.models import ConsumerGroupSpec


def test_every_fault_is_planned_and_can_be_chosen():
    assert set(PLANS) == set(Fault)
    assert {fault for chosen in CHOICES.values() for fault in chosen} == set(Fault)


def test_a_freeze_lasts_longer_than_a_lease_can():
    assert FREEZE_S > 1.5 * LEASE_S


def test_a_soak_draws_every_fault_alone_and_with_others_the_same_for_a_seed():
    rounds = list(islice(drawn(random.Random(1), tuple(PLANS)), 300))
    assert rounds == list(islice(drawn(random.Random(1), tuple(PLANS)), 300))
    assert {faults[0] for faults, _ in rounds if len(faults) == 1} == set(Fault)
    assert {fault for faults, _ in rounds if len(faults) == 2 for fault in faults} == set(Fault)
    assert len({number for _, number in rounds}) == len(rounds), "names of producers are unique"


def test_a_soak_of_one_fault_strikes_once_in_a_round():
    for faults, _ in islice(drawn(random.Random(1), CHOICES["redis"]), 20):
        assert faults == (Fault.REDIS_KILLED,)


def test_each_type_has_a_group_whose_spec_is_valid():
    for name, group in GROUPS.items():
        spec = group_document("workers", "chaos", **group.fields)["spec"]
        assert spec["type"] == name == ConsumerGroupSpec.model_validate(spec).type
    assert {name for name, group in GROUPS.items() if not group.has_order} == {"Shared"}
    assert GROUPS["Session"].lock_s > FREEZE_S, "a frozen consumer may keep a session, or lose it"
    for fault in Fault:
        assert 0 < GROUPS["Session"].load(fault).messages < GROUPS["Shared"].load(fault).messages


def test_members_that_have_no_partitions_for_themselves_are_waited_for(tmp_path):
    where = {"group": "workers", "partition_count": 4, "directory": tmp_path}
    stage = Stage(None, group_type="Session", **where)
    stage.consumers = {"a": None, "b": None}
    stage.progress.add([HeldRow(1, "a", "", JOINED)])
    assert not stage.is_balanced()
    assert stage.imbalance() == "not joined: b"
    stage.progress.add([HeldRow(1, "b", "", JOINED)])
    assert stage.is_balanced()


def test_rounds_are_counted_or_drawn_but_not_both():
    result = CliRunner().invoke(cli, ["chaos", "--rounds", "1", "--minutes", "1"])
    assert result.exit_code == 2
    assert "--rounds and --minutes: expected one of them" in result.output


def test_a_run_that_breaks_off_tells_what_it_had_found(monkeypatch, tmp_path):
    published = [PublishedRow(1, "1.0", 1, "k", 1)]
    verdict = judge(published, [DeliveredRow(1, "a", "1.0", 1, 1, 1, 0, "k", 1)])

    async def break_off(run, *_):
        faults = (Fault.REDIS_KILLED, Fault.BROKER_KILLED)
        run.done.append(
            Round(faults=faults, number=7, struck="redis", duration_s=1.5, verdict=verdict)
        )
        run.total = verdict
        raise UnavailableError("not every partition is Ready")

    monkeypatch.setattr(command._ChaosRun, "rounds", break_off)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = tmp_path / "chaos.json"
    result = CliRunner().invoke(cli, ["chaos", "--minutes", "1", "--json", str(report)])
    assert result.exit_code == 1
    told = json.loads(report.read_text())
    assert (told["is_good"], told["error"]) == (False, "not every partition is Ready")
    assert (told["published"], told["lost"]) == (1, 0)
    assert [(each["fault"], each["round"]) for each in told["rounds"]] == [("redis + broker", 7)]
    assert "redis" in result.output


class Restarting:
    """A process that is being started again, and runs when somebody has looked three times."""

    name = "broker"
    looks = 0
    was_killed_at = None

    @property
    def pid(self):
        self.looks += 1
        return 42 if self.looks > 3 else None

    async def kill(self):
        self.was_killed_at = self.looks


class Looking:
    progress = RunProgress()

    async def until(self, condition, timeout_s):
        return any(condition() for _ in range(10))


async def test_a_process_that_is_being_started_again_is_hit_when_it_runs():
    child = Restarting()
    runtime = SimpleNamespace(brokers=[child])
    chaos = Chaos(runtime, Looking(), random.Random(1), GROUPS["Partitioned"])
    hit, publisher = await chaos._strike(Fault.BROKER_KILLED, "round", None, "publisher")
    assert (hit, publisher, child.was_killed_at) == ("broker", "publisher", 4)


@pytest.mark.chaos
def test_a_round_of_each_fault_loses_nothing_and_keeps_the_order(tmp_path):
    report = tmp_path / "chaos.json"
    result = CliRunner().invoke(cli, ["chaos", "--rounds", "1", "--json", str(report)])
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    assert {each["fault"] for each in told["rounds"]} == {fault.value for fault in Fault}
    for each in told["rounds"]:
        assert each["published"] == PLANS[Fault(each["fault"])].load.messages
        assert each["delivered"] == each["published"], each
        assert (each["lost"], each["out_of_order"]) == (0, 0), each
        assert "unknown" not in each["duplicates"], each


@pytest.mark.chaos
def test_members_of_a_key_shared_group_come_and_go_and_die(tmp_path, monkeypatch):
    """Few of them, on one partition; `partq chaos --type KeyShared` has twelve on four."""
    small = replace(GROUPS["KeyShared"], partitions=1, members=3)
    monkeypatch.setitem(GROUPS, "KeyShared", small)
    load = RoundLoad(messages=1500, size_bytes=100, per_s=1000)
    for fault in (Fault.MEMBERS_CHANGED, Fault.CONSUMER_KILLED):
        monkeypatch.setitem(PLANS, fault, FaultPlan(rounds=1, load=load))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = tmp_path / "chaos.json"
    kinds = ["--type", "KeyShared", "--only", "members", "--only", "consumer", "--with-audit"]
    result = CliRunner().invoke(cli, ["chaos", "--rounds", "1", *kinds, "--json", str(report)])
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    assert [each["fault"] for each in told["rounds"]] == ["members", "consumer"]
    assert told["delivered"] == told["published"] > 0
    assert (told["lost"], told["out_of_order"], told["overlapping"]) == (0, 0, 0)
    assert "unknown" not in told["duplicates"]
    assert told["inspection"]["audit"]["verdict"] == "clean"
