"""Chooses what runs a job: pyarrow in this process, or Spark."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from partq.cli.pipeline.running import SparkChoice, spark_options
from partq.errors import SettingsError, UnavailableError
from partq.spark.java import find_java

Engine = Literal["arrow", "spark"]
ENGINES: Final = ("auto", "arrow", "spark")
ARROW_MESSAGES: Final = 1_000_000
"""From this many messages on, `auto` means Spark, where it is installed."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the options say of the engine, and of Spark."""

    wanted: str
    spark: SparkChoice

    def engine(self, root: str, count: Callable[[], int]) -> Engine:
        """Return the engine of a job; writes a line if it is not the one that would be faster.

        `auto` is Spark wherever the command says something of Spark (`--master`, `--conf`, a URL
        as ROOT, spark-submit), and for `ARROW_MESSAGES` messages or more where Spark can run.

        Args:
            root: of the archive.
            count: returns how many messages the job has to do with; it is asked where that counts.
        """
        if self.wanted != "auto":
            return cast(Engine, self.wanted)
        if self.spark.master or self.spark.settings or "SPARK_ENV_LOADED" in os.environ:
            return "spark"
        if urlsplit(root).scheme not in ("", "file"):
            return "spark"
        messages = count()
        if messages < ARROW_MESSAGES:
            return "arrow"
        lack = _lack_of_spark()
        if lack is None:
            return "spark"
        click.echo(
            f"partq: {messages:,} messages, without Spark in this process alone: {lack}", err=True
        )
        return "arrow"


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--engine` and the options of Spark; the command gets `engine`, an `EngineChoice`."""

    @wraps(command)
    def chosen(*, engine: str, spark: SparkChoice, **others: Any) -> None:
        if engine == "arrow":
            _refuse_options_of_spark(spark)
        command(engine=EngineChoice(engine, spark), **others)

    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="arrow: this process alone, paths of this machine, no Java. spark: any size, any "
        f"storage. auto: arrow below {ARROW_MESSAGES:,} messages, unless ROOT is a URL or an "
        "option of Spark is given.",
    )(spark_options(chosen))


def _refuse_options_of_spark(spark: SparkChoice) -> None:
    """Refuse what would be ignored; a master of the environment may stand there for others.

    Raises:
        SettingsError: the command line has an option of Spark.
    """
    source = click.get_current_context().get_parameter_source("master")
    given: Sequence[str] = [
        *(["--master"] if source == ParameterSource.COMMANDLINE else []),
        *(["--conf"] if spark.settings else []),
    ]
    if given:
        raise SettingsError(
            f"{given[0]}: got it with --engine arrow, which runs without Spark; leave one of the "
            "two out"
        )


def _lack_of_spark() -> str | None:
    """Return what Spark needs and is not there; None: it can run."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed; in a checkout of partq, pip install -e '.[spark]'"
    try:
        find_java()
    except UnavailableError as error:
        return error.message
    return None
