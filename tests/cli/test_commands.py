"""The table of commands and what users see when something is wrong."""

import importlib
import logging
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from partq.cli.commands import COMMANDS, cli
from partq.cli.main import LABORATORY
from partq.core.model import NAME_RULE

URL = ["--url", "http://127.0.0.1:1"]
CONSUME = ("consume", *URL, "--token", "t")


def run(*arguments, **options):
    return CliRunner().invoke(cli, arguments, **options)


def test_help_imports_no_command():
    program = (
        "import sys; from partq.cli.commands import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(' '.join(sys.modules.keys() & {'pydantic', 'redis', 'rich', 'uvloop'}) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name):
    entry = COMMANDS[name]
    command = getattr(importlib.import_module(entry.module), entry.attribute)

    assert isinstance(command, click.Command)
    assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [(["rescal"], "rescale"), (["pipeline", "archiv"], "archive"), (["dev", "upp"], "up")],
)
def test_an_unknown_command_gets_a_suggestion(arguments, suggested):
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"Did you mean '{suggested}'?" in result.stderr


def completed(words):
    """Return what a shell is offered for the last of these words."""
    program = "import sys; from partq.cli.main import main; main()"
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "_PARTQ_COMPLETE": "bash_complete", **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {line.partition(",")[2] for line in done.stdout.splitlines()}


def test_a_shell_completes_commands_and_options():
    assert completed(["partq", "stat"]) == {"state", "status"}
    assert completed(["partq", "pipeline", "ar"]) == {"archive"}
    assert {"--offset"} == completed(["partq", "browse", "--of"])


def test_the_script_for_a_shell_is_one_of_that_shell():
    script = run("completion", "bash").stdout
    told = subprocess.run(
        ["bash", "-c", script + "\ncomplete -p partq"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "-F _partq_completion partq" in told.stdout
    assert "_PARTQ_COMPLETE" in run("completion", "fish").stdout
    assert run("completion", "tcsh").exit_code == 2


def commands_of(command, *path):
    """Yield a command and those below it, each with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands_of(command.get_command(context, name), *path, name)


def test_every_help_lists_what_finds_the_queue_last():
    place = ["--queue", "--namespace", "--url", "--token", "--ca-file", "--data-dir"]
    found = {}
    for path, command in commands_of(cli):
        options = [each.opts[-1] for each in command.params if isinstance(each, click.Option)]
        found[path] = [each for each in options if each in place]
        assert options == [each for each in options if each not in place] + found[path], path
    assert found["browse",] == found["dead-letters", "replay"] == place
    assert found["dev", "up"] == ["--data-dir"]


def ranges_of(command, *path):
    """Yield each option of a command, and of those below it, that takes a number in a range."""
    for name, below in getattr(command, "commands", {}).items():
        yield from ranges_of(below, *path, name)
    for option in command.params:
        if isinstance(option.type, click.FloatRange):
            yield (*path, option.opts[0]), option


def test_no_option_takes_what_is_no_number():
    """`--idle nan` was never over."""
    found = {}
    for name, entry in COMMANDS.items():
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        found |= dict(ranges_of(command, name))
    assert ("consume", "--idle") in found
    for option in found.values():
        with pytest.raises(click.BadParameter, match="got nan, expected a number"):
            option.type.convert("nan", option, None)


def test_an_idle_time_without_an_end_is_refused():
    result = run("consume", *URL, "--idle", "inf")
    assert (result.exit_code, "--idle" in result.stderr) == (2, True)


COMPLETE = {
    "publish": ["x"],
    "consume": ["--group", "g"],
    "drained": ["--group", "g", "--member", "m"],
    "status": [],
    "browse": [],
    "groups": [],
    "reset": ["--group", "g", "--to", "earliest"],
    "dead-letters": ["list"],
    "explain": ["0", "--group", "g"],
}


@pytest.mark.parametrize("command", COMPLETE)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--url", "http://user:s3cret@127.0.0.1:1", "--token", "t"], "url: got a user or a"),
        ([*URL, "--token", ""], "token: got an empty text"),
    ],
)
def test_a_password_or_an_empty_token_is_refused_before_any_call(command, given, says):
    """Not after the seconds that a command waits for brokers, and without the password."""
    arguments = [*COMPLETE[command], "--queue", "orders", *given]
    result = run(command, *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith(f"partq: {says}"), result.stderr
    assert "s3cret" not in result.output


def without(package, command):
    """Run a command's help in an environment that lacks a package."""
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['partq', {command!r}, '--help'];"
        "from partq.cli.main import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("click", "--help", "cli"),
        ("rich", "status", "cli"),
        ("redis", "dev", "embedded"),
        ("rich", "demo", "lab"),
        ("redis", "demo", "lab"),
        ("psutil", "bench", "lab"),
        ("lupa", "simulate", "lab"),
        ("redis", "chaos", "lab"),
    ],
)
def test_missing_package_names_the_extra(package, command, extra):
    done = without(package, command)
    assert done.returncode == 2
    assert done.stderr.startswith(f"partq: this command needs the package {package!r}")
    assert f"in a checkout of partq: pip install -e '.[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_commands_of_the_laboratory_are_those_that_need_its_extra():
    room = {name for name, entry in COMMANDS.items() if entry.module.startswith("partq.cli.lab.")}
    assert room == LABORATORY


def test_unknown_command():
    assert run("nonsense").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["publish", "x"], "no queue of the namespace default runs in "),
        (["consume"], "start `partq dev up -f FILE`, name its --data-dir, or give --url"),
        (["status", *URL], "--url is given without --queue (PARTQ_QUEUE)"),
        (["status", *URL, "--queue", "q"], "--url is given without --token (PARTQ_TOKEN)"),
        (["consume", *URL, "--queue", "q", "--token", "t"], "--group is not given"),
        ([*CONSUME, "--queue", "Q!"], f"--queue: got 'Q!', expected {NAME_RULE}"),
        ([*CONSUME, "--queue", "q", "--group", "g."], f"--group: got 'g.', expected {NAME_RULE}"),
        (["status", "--url", "host", "--queue", "q", "--token", "t"], "url 'host': expected"),
        (
            ["publish", "--input", "/dev/null", "x"],
            "--input cannot be combined with VALUES or --key",
        ),
        (["consume", "--count", "0"], "0 is not in the range x>=1"),
        (["dev", "up", "-f", "/no/such/file"], "File '/no/such/file' does not exist"),
        (["broker"], "PARTQ_QUEUE is not set; BrokerSettings needs it"),
        (["coordinator"], "PARTQ_QUEUE is not set; CoordinatorSettings needs it"),
    ],
)
def test_wrong_usage(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("PARTQ_URL", "PARTQ_QUEUE", "PARTQ_TOKEN", "PARTQ_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)

    result = run(*arguments)

    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


def test_a_url_of_the_environment_is_called_by_its_variable(monkeypatch):
    for variable in ("PARTQ_QUEUE", "PARTQ_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    env = {"PARTQ_URL": URL[-1]}
    for given, missing in (
        ((), "--queue (PARTQ_QUEUE)"),
        (("--queue", "q"), "--token (PARTQ_TOKEN)"),
    ):
        result = run("status", *given, env=env)
        assert result.exit_code == 2
        assert f"PARTQ_URL is set, but {missing} is not given; give both, or" in result.stderr
        assert "unset PARTQ_URL" in result.stderr
        assert "--url" not in result.stderr


def test_no_broker_there():
    result = run("status", *URL, "--queue", "q", "--token", "t")

    assert result.exit_code == 1
    assert result.stderr.startswith("partq: no broker answers: http://127.0.0.1:1: ")


def test_wrong_resources_name_the_file(tmp_path):
    file = tmp_path / "queue.yaml"
    file.write_text("kind: Pod\n")

    result = run("dev", "up", "-f", str(file), "--data-dir", str(tmp_path))

    assert result.exit_code == 2
    assert result.stderr == (
        f"partq: {file}: document 1 (Pod): kind: got 'Pod', "
        "expected one of PartitionedQueue, ConsumerGroup\n"
    )


def test_version():
    assert run("--version").stdout.startswith("cli, version ")


def test_a_url_without_a_group_says_what_lists_them():
    done = run("consume", *URL, "--queue", "orders", "--token", "t")
    assert done.exit_code == 2
    assert "--group is not given (PARTQ_GROUP), and with a URL it has to be" in done.stderr
    assert "`partq groups` lists the queue's; name one" in done.stderr


@pytest.mark.parametrize("arguments", [("publish", "x"), ("consume", "--group", "g")], ids=" ".join)
def test_what_a_command_tells_by_itself_is_logged_again_after_it(arguments):
    done = run(*arguments, "--wait", "0", *URL, "--queue", "q", "--token", "t")
    assert done.exit_code == 1
    loggers = [logging.getLogger(name) for name in ("partq.client", "partq.client.failures")]
    assert [(log.level, log.filters) for log in loggers] == [(logging.NOTSET, [])] * 2
