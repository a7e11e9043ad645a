"""The processes of pods: which event loop each of them has."""

import asyncio

from click.testing import CliRunner

from partq.cli.commands import cli

ENVIRONMENT = {
    "PARTQ_BROKER_IMAGE": "partq:test",
    "PARTQ_POD_NAME": "partq-operator-0",
    "PARTQ_POD_NAMESPACE": "partq",
}


def test_the_operator_does_not_run_on_uvloop(monkeypatch):
    """It ends kopf when connections to the API server fail."""
    loops = []

    async def operate(settings):
        loops.append(type(asyncio.get_running_loop()).__module__)

    monkeypatch.setattr("partq.cli.hosting.operate.operate", operate)
    monkeypatch.setattr("partq.cli.hosting.processes.configure_logging", lambda level: None)
    result = CliRunner().invoke(cli, ["operator"], env=ENVIRONMENT, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert loops == ["asyncio.unix_events"]
