"""The programs of docs/testing.md run as a reader's tests."""

import os
import subprocess
import sys

from tests.examples.pages import program
from tests.examples.test_page_programs import run

PAGE = "testing.md"
HEAD = "from partq import Consumer, Producer\n"


async def test_one_queue_for_one_test():
    left = await run(program(PAGE, "One queue for one test"))
    await left["test_orders"]()


def test_its_tests_and_fixtures_pass(tmp_path):
    """In a project of a reader: one pytest, whose fixture all files share."""
    files = {
        "conftest.py": program(PAGE, "Fixtures for pytest"),
        "test_shared.py": program(PAGE, "Tests that share a queue"),
        "test_waits.py": HEAD + program(PAGE, "Waiting for conditions"),
        "test_settings.py": (
            "import os\n\n\ndef test_the_queue_is_found(settings, broker):\n"
            "    assert os.environ['PARTQ_URL'] == broker.url\n"
        ),
        "pytest.ini": (
            "[pytest]\nasyncio_mode = auto\nfilterwarnings = error\n"
            "asyncio_default_fixture_loop_scope = function\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "pytest_asyncio.plugin",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
