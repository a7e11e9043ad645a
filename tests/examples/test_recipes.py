"""The programs of docs/recipes.md run with their frameworks and servers, against a real queue."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, closing

import aiohttp
import pytest

from partq import Browser, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.testing.tcp_ports import HOST, free_port
from tests.examples.pages import program
from tests.examples.programs import WAIT_S, output

PAGE = "recipes.md"
TOO_LONG = "k" * 2000
"""A key that no queue takes."""


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(groups=[f"group-{number}" for number in range(4)]) as local:
        yield local


def write(folder, **files):
    """Write programs of the page; `__` in a name stands for a folder."""
    for name, heading in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program(PAGE, heading), encoding="utf-8")


@asynccontextmanager
async def started(broker, folder, *words, group=0):
    """Start a program in a folder; it ends with the block, if need be by force."""
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('group="workers"', f'group="group-{group}"'), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        cwd=folder,
        env=os.environ
        | {
            "HOME": str(folder),  # gunicorn keeps a socket there
            "PARTQ_URL": broker.url,
            "PARTQ_TOKEN": broker.tokens.admin,
            "PYTHONUNBUFFERED": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def call(method, url, value=b""):
    """Make a call once the server takes it; return its status and answer."""

    async def answered():
        try:
            async with http.request(method, url, data=value) as response:
                return response.status, await response.json()
        except aiohttp.ClientConnectionError:
            return None

    async with aiohttp.ClientSession() as http:
        return await eventually(answered, f"{url} answers", interval_s=0.1)


async def check_publishes(broker, port, key):
    """Publish by a server, and see that what can never be stored is refused."""
    url = f"http://{HOST}:{port}/orders"
    status, answer = await call("POST", f"{url}/{key}", b"paid")
    assert status == 201, answer
    assert await call("POST", f"{url}/{TOO_LONG}") == (400, {"error": "bad_request"})
    async with Browser(broker.url, queue="orders", token=broker.tokens.admin) as browser:
        found = {(str(each.partition), each.offset): each async for each in browser.messages(1000)}
    each = found[answer["partition"], answer["offset"]]
    assert (each.message.key, each.message.value) == (key, b"paid")


async def check_consumes(broker, process, key):
    """Publish to a worker that prints its orders, and end it in the middle of others."""
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(b"paid", key=key)
    lines = []
    async with asyncio.timeout(WAIT_S):
        while f"{key} paid" not in lines:
            lines.append((await process.stdout.readline()).decode().strip())
            assert lines[-1], lines
    process.send_signal(signal.SIGTERM)
    assert (await output(process))[-1] == "the partitions are handed over"


async def test_fastapi(broker, tmp_path):
    write(tmp_path, app="FastAPI")
    port = free_port()
    words = ("-m", "uvicorn", "app:app", "--port", str(port))
    async with started(broker, tmp_path, *words) as server:
        await check_publishes(broker, port, "fastapi")
        server.send_signal(signal.SIGTERM)
        lines = await output(server, status=-signal.SIGTERM)
    assert any("Application shutdown complete" in line for line in lines), lines


async def test_fastapi_that_consumes(broker, tmp_path):
    write(tmp_path, app="A consumer in the same process")
    port = free_port()
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(b"paid", key="consumed")
    words = ("-m", "uvicorn", "app:app", "--port", str(port))
    async with started(broker, tmp_path, *words) as server:

        async def consumed():
            status, count = await call("GET", f"http://{HOST}:{port}/orders")
            return status == 200 and count > 0

        await eventually(consumed, "an order was consumed", interval_s=0.1)
        server.send_signal(signal.SIGTERM)
        lines = await output(server, status=-signal.SIGTERM)
    assert any("Application shutdown complete" in line for line in lines), lines


async def test_a_server_whose_consumer_fails_ends(broker, tmp_path):
    write(tmp_path, app="A consumer in the same process")
    text = (tmp_path / "app.py").read_text(encoding="utf-8")
    failing = text.replace("    orders.append((", "    raise ValueError((")
    assert failing != text
    (tmp_path / "app.py").write_text(failing, encoding="utf-8")
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await producer.send_and_wait(b"paid", key="failing")
    words = ("-m", "uvicorn", "app:app", "--port", str(free_port()))
    async with started(broker, tmp_path, *words, group=1) as server:
        lines = await output(server, status=-signal.SIGTERM)
    assert any("consuming has failed, so the server ends" in line for line in lines), lines


async def test_a_worker(broker, tmp_path):
    write(tmp_path, worker="A worker")
    async with started(broker, tmp_path, "worker.py", group=1) as process:
        await check_consumes(broker, process, "worker")


async def test_flask_preloaded_by_gunicorn(broker, tmp_path):
    """Both workers publish, with an application that was imported before the fork."""
    write(tmp_path, app="Flask", **{"gunicorn.conf": "Gunicorn, and preloading"})
    port = free_port()
    words = ("-m", "gunicorn", "app:app", "--bind", f"{HOST}:{port}")
    logged = ("--access-logfile", "-", "--access-logformat", "served by %(p)s: %(s)s")
    async with started(broker, tmp_path, *words, *logged) as server:
        await check_publishes(broker, port, "flask")
        pids = set()

        async def read():
            async for line in server.stdout:
                pids.update(re.findall(r"served by <(\d+)>: 201", line.decode()))

        async def both_have_served():
            url = f"http://{HOST}:{port}/orders/flask"
            await asyncio.gather(*(call("POST", url, b"more") for _ in range(16)))
            return len(pids) == 2

        reading = asyncio.create_task(read())
        await eventually(both_have_served, "both workers have published")
        server.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            assert await server.wait() == 0
            await reading


async def test_a_worker_of_flask(broker, tmp_path):
    write(tmp_path, app="Flask")
    words = ("-m", "flask", "--app", "app", "consume")
    async with started(broker, tmp_path, *words, group=2) as process:
        await check_consumes(broker, process, "flask-worker")


START = """
from django.core.management import call_command
call_command("startproject", "shop", ".")
call_command("startapp", "orders")
"""
MIGRATE = """
import os, sys
import django
from django.core.management import call_command
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
sys.path.insert(0, "")
django.setup()
call_command("makemigrations", "orders", verbosity=0)
call_command("migrate", "orders", verbosity=0)
"""
"""What a reader does by commands of Django, in one process each."""


def make_project(folder):
    """Make the project that the page names."""

    def run(code):
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=WAIT_S)

    run(START)
    write(
        folder,
        orders__publishing="Django",
        orders__views="Views",
        orders__models="Models",
        orders__management__commands__consume_orders="The worker of Django",
    )
    with (folder / "shop" / "settings.py").open("a", encoding="utf-8") as settings:
        settings.write("INSTALLED_APPS.append('orders')\n")
    (folder / "shop" / "urls.py").write_text(
        "from django.urls import path\nfrom orders.views import add_order\n\n"
        "urlpatterns = [path('orders/<str:customer>', add_order)]\n",
        encoding="utf-8",
    )
    conf = program(PAGE, "Gunicorn, and preloading").replace(
        "from app import producer", "from orders.publishing import producer"
    )
    (folder / "gunicorn.conf.py").write_text(conf, encoding="utf-8")
    run(MIGRATE)


def written(folder):
    """Return the orders of the database of Django, and how often each is there."""
    with closing(sqlite3.connect(folder / "db.sqlite3")) as database:
        rows = database.execute("SELECT customer, text FROM orders_order")
        return Counter((customer, text) for customer, text in rows)


async def test_django(broker, tmp_path):
    """A view publishes under gunicorn, and the worker writes each order once."""
    await asyncio.to_thread(make_project, tmp_path)
    port = free_port()
    words = ("-m", "gunicorn", "shop.wsgi", "--bind", f"{HOST}:{port}")
    async with started(broker, tmp_path, *words) as server:
        await check_publishes(broker, port, "django")
        server.send_signal(signal.SIGTERM)
        await output(server)
    async with started(broker, tmp_path, "manage.py", "consume_orders", group=3) as worker:
        await eventually(lambda: written(tmp_path)["django", "paid"], "the order is written")
        worker.send_signal(signal.SIGTERM)
        assert (await output(worker))[-1] == "the partitions are handed over"
    assert written(tmp_path)["django", "paid"] == 1
