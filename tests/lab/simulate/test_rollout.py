"""A rolling update moves each partition once, with the real parts; simple assignors move more."""

import json

import pytest
from click.testing import CliRunner

import partq.cli.lab.simulate as simulate_command
from partq.cli.commands import cli
from partq.lab.simulate.rollout import Case, Moves, cost

SMALL = [Case(16, 4, is_surge) for is_surge in (True, False)]
CASES = [*SMALL, Case(64, 8, True), Case(64, 8, False), Case(256, 20, True)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_partition_moves_once(case):
    found = cost(case)
    assert found.partq == Moves(case.partition_count, 1)
    # Paused first, each of them: nobody was cut off.
    assert len(found.pauses_ms) == case.partition_count
    assert found.partq.count < found.sticky.count < found.modulo.count
    assert found.partq.most < found.sticky.most < found.modulo.most


@pytest.mark.parametrize("seed", range(1, 6))
def test_whatever_the_order_of_events(seed):
    for case in SMALL:
        assert cost(case, seed).partq == Moves(case.partition_count, 1)


def test_news_that_arrive_behind_a_pod_s_bind_move_nothing_twice():
    # By these seeds one of the new pods is bound before the coordinator hears that it replaces.
    for seed in (0, 2, 5):
        assert cost(Case(64, 8, True), seed).partq == Moves(64, 1)


def test_the_command_prints_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate_command, "CASES", SMALL)
    path = tmp_path / "rollouts.json"
    answer = CliRunner().invoke(cli, ["simulate", "--rollout", "--json", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "no surge" in answer.output
    found = json.loads(path.read_text(encoding="utf-8"))["rollouts"]
    assert [each["partq"] for each in found] == [{"count": 16, "most": 1}] * 2
