"""Commands that look at queues and change them, beside a broker of the test."""

import asyncio

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli


@pytest.fixture
def partq(tmp_path):
    """Run a command; return its exit status, and what it prints and complains of."""

    async def partq(*arguments):
        env = {"PARTQ_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200"}
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)
        return result.exit_code, result.stdout, result.stderr

    return partq
