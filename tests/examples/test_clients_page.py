"""docs/clients.md: every name in its table is there, and every command does what the page says."""

import asyncio
import inspect
import json
import os
import re
import shutil
import sys
from pathlib import Path

import click
import msgspec
import pytest

import partq
from partq import Producer
from partq.broker.api.routes import publish_http, pull
from partq.broker.api.routes.administration import scheduled
from partq.cli.commands import cli
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.bodies import PublishBody, PublishHeaders, PullBody

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
WAIT_S = 60.0


def column(number):
    """Return the names in one column of the table."""
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("|")]
    names = [name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row[number])]
    assert names
    return names


@pytest.mark.req("SOL-09", "SOL-16")
@pytest.mark.parametrize("name", column(1))
def test_names_of_python_are_there(name):
    path, _, argument = name.rstrip("=)").partition("(")
    found = partq
    for part in path.split("."):
        found = getattr(found, part)
    assert not argument or argument in inspect.signature(found).parameters


@pytest.mark.req("SOL-09", "SOL-16")
@pytest.mark.parametrize("name", column(2))
def test_names_of_plain_http_are_there(name):
    calls = (*publish_http.calls, *pull.calls, *scheduled.calls)
    routes = {f"{each.method} {each.path}" for each in calls}
    headers = {field.encode_name for field in msgspec.structs.fields(PublishHeaders)}
    bodies = {body.__name__: body.__struct_fields__ for body in (PublishBody, PullBody)}
    fields = {f"{body}.{field}" for body, names in bodies.items() for field in names}
    in_messages = {'"key"'}
    assert name in routes | fields | headers | in_messages


@pytest.mark.req("SOL-09", "SOL-16")
@pytest.mark.parametrize("name", column(3))
def test_names_of_the_command_line_are_there(name):
    program, command, *options = name.split()
    found = cli.get_command(click.Context(cli), command)
    if isinstance(found, click.Group):
        found = found.get_command(click.Context(found), options.pop(0))
    known = {option for each in found.params for option in each.opts}
    assert program == "partq"
    assert known.issuperset(options)


@pytest.mark.req("SOL-16")
async def test_every_client_puts_a_key_into_the_same_partition():
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    commands = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert {command.split()[0] for command in commands} == {"curl", "partq"}
    (call,) = re.findall(r"producer\.send_and_wait\((.*?)\)\n", PAGE)
    assert call == 'b"paid", key="customer-7"'
    async with LocalBroker(groups=[], lease_ttl_s=10.0) as broker, asyncio.timeout(WAIT_S):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = os.environ | {
            "PARTQ_URL": broker.url,
            "PARTQ_QUEUE": "orders",
            "PARTQ_TOKEN": broker.tokens.produce,
            "PATH": path,
        }
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            stored = await producer.send_and_wait(b"paid", key="customer-7")
        places = [(str(stored.partition), stored.offset)]
        for command in commands:
            process = await asyncio.create_subprocess_shell(
                command, env=environment, stdout=asyncio.subprocess.PIPE
            )
            answer, _ = await process.communicate()
            assert process.returncode == 0, answer
            places.append((json.loads(answer)["partition"], json.loads(answer)["offset"]))
    assert places == [(places[0][0], number) for number in range(len(places))]
    assert len(places) == 1 + len(commands)
