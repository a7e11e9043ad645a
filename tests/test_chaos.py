"""One round of each fault, under load, through the command; `make chaos` runs many."""

import json

import pytest
from click.testing import CliRunner

from partq.cli.chaos.faults import CHOICES, FREEZE_S, LEASE_S, PLANS, Fault
from partq.cli.commands import cli


def test_every_fault_is_planned_and_can_be_chosen():
    assert set(PLANS) == set(Fault)
    assert {fault for chosen in CHOICES.values() for fault in chosen} == set(Fault)


def test_a_freeze_lasts_longer_than_a_lease_can():
    assert FREEZE_S > 1.5 * LEASE_S


@pytest.mark.chaos
@pytest.mark.timeout(400)
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
