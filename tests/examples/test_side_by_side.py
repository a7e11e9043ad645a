"""docs/side-by-side.md: its counts are those of its programs, and the programs of partq run."""

import ast
import os
import re
import signal
from collections import Counter

import pytest
import yaml

from partq.sync import Producer
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import ROOT, program_blocks

PAGE = (ROOT / "docs" / "side-by-side.md").read_text("utf-8")
LIBRARIES = ["partq", "aiokafka", "pulsar-client", "azure-servicebus", "nats-py", "aio-pika"]


class TryAgainLaterError(Exception):
    """What the application raises."""


def section(library):
    (found,) = re.findall(rf"^### {library}\n(.*?)(?=^### |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return found


def row(name):
    """Return the numbers of a row, by library."""
    (cells,) = re.findall(rf"^\| {name} \| (.*) \|$", PAGE, re.MULTILINE)
    return dict(zip(LIBRARIES, map(int, cells.split(" | ")), strict=True))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_table_counts_the_programs(library):
    publish, worker = programs = program_blocks("side-by-side.md", library)
    for each in programs:
        ast.parse(each)
    lines = {
        each: [line for line in each.splitlines() if line.strip() and line.strip()[0] != "#"]
        for each in programs
    }
    assert row("lines to publish")[library] == len(lines[publish])
    assert row("lines of the worker")[library] == len(lines[worker])
    shown, _, told = section(library).rpartition("\nNames: ")
    names = re.findall(r"`([^`]+)`", told)
    assert row("names in the worker")[library] == len(names)
    assert [name for name in names if name not in shown] == []


@pytest.fixture(scope="module")
def broker():
    (text,) = re.findall(r"```yaml\n(.*?)```", section("partq"), re.DOTALL)
    spec = yaml.safe_load(text)["spec"]
    assert spec["nack"]["backoff"]["minSeconds"] == 1
    spec["nack"]["backoff"] = {"minSeconds": 0.01, "maxSeconds": 0.02}
    others = {name: spec[name] for name in spec.keys() - {"queue", "selector"}}
    with LocalBroker(groups={"workers": others}) as local:
        yield local


def test_the_programs_of_partq_do_the_task(broker):
    """The first order of the customer fails three times, and the second one waits meanwhile."""
    publish, worker = program_blocks("side-by-side.md", "partq")
    tries = Counter()
    seen = []

    async def process(key, value):
        assert key == "customer-7"
        seen.append(value)
        tries[value] += 1
        if value == b"paid" or tries[value] == 1:
            raise TryAgainLaterError
        if value == b"a bug" and tries[value] == 2:
            raise ZeroDivisionError
        if value == b"last":
            os.kill(os.getpid(), signal.SIGTERM)

    names = {
        "url": broker.url,
        "token": broker.tokens.admin,
        "process": process,
        "TryAgainLaterError": TryAgainLaterError,
    }
    exec(publish, dict(names))
    with Producer(broker.url, queue="orders", token=broker.tokens.admin) as producer:
        for value in (b"packed", b"a bug", b"last"):
            producer.send_and_wait(value, key="customer-7")
    with pytest.raises(ZeroDivisionError):
        exec(worker, dict(names))
    assert seen == [b"paid"] * 3 + [b"packed"] * 2 + [b"a bug"] * 2
    seen.clear()
    exec(worker, dict(names))
    assert seen == [b"a bug"] + [b"last"] * 2
