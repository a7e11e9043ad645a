"""Commands that are started without a standard input, or with one that nobody can read."""

import shlex
import subprocess

import pytest

from tests.cli.processes import PARTQ

TIMEOUT_S = 120
ADDRESS = ("--url", "http://127.0.0.1:9", "--queue", "orders", "--token", "t")


def shell(*arguments, redirection):
    """Run a command of partq in a shell, with what it does to standard input."""
    program = f"exec {shlex.join([*PARTQ, *arguments])} {redirection}"
    done = subprocess.run(
        ["sh", "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (("publish", *ADDRESS), "give the messages as VALUES, by a pipe, or in a file with --in"),
        (("publish", *ADDRESS, "--input", "-"), "give the messages as VALUES, by a pipe, or in"),
        (("plan",), "give JSON there, or --from-live to look at a group that runs"),
    ],
    ids=["publish", "publish --input -", "plan"],
)
def test_one_that_is_closed_is_told_in_one_sentence(arguments, instead):
    status, said = shell(*arguments, redirection="<&-")
    (line,) = said.splitlines()
    assert (status, line.startswith(f"partq: standard input: it is closed; {instead}")) == (2, True)


def test_nobody_is_asked_where_it_is_closed():
    program = "import sys; from partq.cli.standard_input import is_terminal; print(is_terminal())"
    command = shlex.join([PARTQ[0], "-c", program])
    done = subprocess.run(
        ["sh", "-c", f"exec {command} <&-"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
