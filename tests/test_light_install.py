"""A wheel without extras: small, with few dependencies, and enough to publish and consume."""

import asyncio
import os
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from partq.testing.local_broker import LocalBroker
from tests.test_locks import pinned, printed

ROOT = Path(__file__).parent.parent
MAX_WHEEL_BYTES = 2 * 1024 * 1024
MAX_DEPENDENCIES = 16
"""Those of aiohttp included."""
MAX_DEPENDENCY_BYTES = 32 * 1024 * 1024
"""As they are installed, before Python compiles them."""
WAIT_S = 60.0

CLIENT = """
import asyncio, sys
before = set(sys.modules)
import partq
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print("import partq:", *sorted(loaded - sys.stdlib_module_names))

from partq import Consumer, Producer
from partq.sync import Producer as SyncProducer
url, produce, consume = sys.argv[1:]


async def main():
    async with Producer(url, queue="orders", token=produce, compression="zstd") as producer:
        await producer.send_and_wait(b"first", key="a")
    with SyncProducer(url, queue="orders", token=produce) as producer:
        await asyncio.to_thread(producer.send_and_wait, b"second", key="a")
    async with Consumer(url, queue="orders", group="workers", token=consume) as consumer:
        for _ in range(2):
            message = await anext(consumer)
            await consumer.ack(message, confirmed=True)
            print("consumed:", message.value.decode())


asyncio.run(main())
print("from:", partq.__file__)
"""


def pip(*words, python=sys.executable):
    """Run pip without an index."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *words],
        check=True,
        timeout=300,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PIP_NO_INDEX": "1"},
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("partq-*.whl")
    return built


@pytest.fixture(scope="module")
def dependencies():
    """The installed packages that partq needs without an extra."""
    return [metadata.distribution(name) for name in pinned(printed("partq").stdout)]


@pytest.fixture(scope="module")
def python(wheel, dependencies, tmp_path_factory):
    """The Python of a new environment, which has the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for each in dependencies:
        for name in {file.parts[0] for file in each.files} - {"..", "__pycache__"}:
            (packages / name).symlink_to(each.locate_file(name))
    path = str(folder / "bin" / "python")
    pip("install", "--no-deps", "--no-compile", str(wheel), python=path)
    return path


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < MAX_WHEEL_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "partq",
        "pyspark_partq.py",
    }


def test_its_dependencies_are_few_and_small(dependencies):
    assert len(dependencies) <= MAX_DEPENDENCIES
    files = [
        Path(each.locate_file(file))
        for each in dependencies
        for file in each.files
        if file.suffix != ".pyc"
    ]
    assert sum(file.stat().st_size for file in files) < MAX_DEPENDENCY_BYTES


async def test_it_publishes_and_consumes(python):
    """`import partq` reads no other package, so that it costs a program next to nothing."""
    async with LocalBroker(groups=["workers"]) as broker:
        program = await asyncio.create_subprocess_exec(
            python, "-I", "-c", CLIENT, broker.url, broker.tokens.produce, broker.tokens.consume,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(WAIT_S):
            told, _ = await program.communicate()
    assert program.returncode == 0
    lines = told.decode().splitlines()
    assert lines[:3] == ["import partq: partq", "consumed: first", "consumed: second"]
    assert lines[3].startswith(f"from: {Path(python).parent.parent}")


def test_a_command_names_the_extra_that_it_needs(python):
    done = subprocess.run(
        [Path(python).parent / "partq", "status"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 2
    assert "pip install -e '.[cli]'" in done.stderr
