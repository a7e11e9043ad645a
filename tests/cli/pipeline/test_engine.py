"""Which engine runs a job."""

import click
import pytest
from click.testing import CliRunner

from partq.cli.errors import command_errors
from partq.cli.pipeline import engine as engines
from partq.cli.pipeline.engine import ARROW_MESSAGES, engine_options

FEW, MANY = ARROW_MESSAGES - 1, ARROW_MESSAGES


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("SPARK_ENV_LOADED", "PARTQ_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def _spark(monkeypatch):
    monkeypatch.setattr(engines, "_lack_of_spark", lambda: None)


@pytest.fixture
def _no_spark(monkeypatch):
    monkeypatch.setattr(engines, "_lack_of_spark", lambda: "no java on the PATH")


def chosen(*arguments, count=FEW, root="/data/orders", env=None):
    """Run a command that prints its engine."""

    @click.command()
    @engine_options
    def command(*, engine):
        click.echo(engine.engine(root, lambda: count))

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def guarded(arguments):
        with command_errors():
            command.main(list(arguments), standalone_mode=False)

    return CliRunner().invoke(guarded, arguments, env=env)


@pytest.mark.usefixtures("_spark")
@pytest.mark.parametrize(
    ("arguments", "given", "engine"),
    [
        pytest.param([], {}, "arrow", id="few messages"),
        pytest.param([], {"count": MANY}, "spark", id="many messages"),
        pytest.param([], {"root": "file:///data/orders"}, "arrow", id="URL of a path"),
        pytest.param([], {"root": "s3a://lake/orders"}, "spark", id="URL of a store"),
        pytest.param(["--master", "local[2]"], {}, "spark", id="a master"),
        pytest.param(["--conf", "spark.x=1"], {}, "spark", id="a setting of Spark"),
        pytest.param([], {"env": {"SPARK_ENV_LOADED": "1"}}, "spark", id="spark-submit"),
        pytest.param(["--engine", "arrow"], {"count": MANY}, "arrow", id="arrow is asked for"),
        pytest.param(["--engine", "spark"], {}, "spark", id="spark is asked for"),
        pytest.param(
            ["--engine", "arrow"],
            {"env": {"PARTQ_SPARK_MASTER": "yarn"}},
            "arrow",
            id="arrow is asked for where the environment has a master",
        ),
    ],
)
def test_the_engine(arguments, given, engine):
    result = chosen(*arguments, **given)
    assert (result.stdout, result.stderr) == (f"{engine}\n", "")


@pytest.mark.usefixtures("_no_spark")
def test_without_spark_many_messages_are_done_and_one_line_says_so():
    result = chosen(count=MANY)
    assert result.stdout == "arrow\n"
    assert result.stderr == (
        "partq: 1,000,000 messages, without Spark in this process alone: no java on the PATH\n"
    )
    assert chosen(count=FEW).stderr == ""


@pytest.mark.parametrize("option", [["--master", "yarn"], ["--conf", "spark.x=1"]])
def test_options_of_spark_are_not_ignored(option):
    result = chosen("--engine", "arrow", *option)
    assert result.exit_code == 2
    assert f"{option[0]}: got it with --engine arrow" in result.stderr


def test_what_spark_lacks_is_said(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "JAVA_HOME is /nowhere" in (engines._lack_of_spark() or "")
