"""Runs one job from the command line: options, signals, and errors as sentences."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partq.cli import interrupts
from partq.cli.pipeline.display import Display, open_display
from partq.errors import SettingsError
from partq.excerpts import excerpt

if TYPE_CHECKING:
    from partq.pipeline.job import Job
    from partq.pipeline.watch import JobWatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """What the options say of Spark."""

    master: str | None
    settings: Mapping[str, str]


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where Spark runs; the command gets `spark`, a `SparkChoice`."""

    @wraps(command)
    def chosen(*, master: str | None, conf: Sequence[str], **others: Any) -> None:
        command(spark=SparkChoice(master, _settings(conf)), **others)

    chosen = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
    )(chosen)
    return click.option(
        "--master",
        envvar="PARTQ_SPARK_MASTER",
        show_envvar=True,
        help="Spark master URL. Default: that of spark-submit, or local[*].",
    )(chosen)


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--json`; a signal before the job, and one after it, leave the answer whole."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print the result, or the error, as one JSON object.",
    )(answers_signals(command))


def run_job(title: str, spark: SparkChoice, work: Callable[["Job"], T]) -> tuple[T, int]:
    """Run `work` with a Spark session, and show its progress on standard error.

    Ctrl-C and SIGTERM ask the job to end: its Spark jobs are cancelled, and `work` returns with
    what is durable, or raises `StoppedError`. A second signal ends the process at once. One while
    Spark is starting ends the command as `answers_signals` does.

    Returns:
        What `work` returns, and the signal that ended it; 0: none did.

    Raises:
        PartqError: as `work`; what Spark raises is put into one sentence.
        click.exceptions.Exit: a signal ended the job before it had anything to return; the exit
            status is that of shells, 130 for Ctrl-C and 143 for SIGTERM.
    """
    # Only here: `--help` needs no Spark.
    from partq.pipeline.failures import spark_failures
    from partq.pipeline.job import Job
    from partq.pipeline.watch import JobWatch

    with open_display(title, "starting Spark") as display:
        watch = JobWatch(display.show, display.tell)
        with spark_failures(), _signals(watch) as received:
            job = Job.open(title, watch, master=spark.master, settings=spark.settings)

            def run() -> T:
                job.enter_thread()
                return work(job)

            return _until_signal(display, run, job.stop, received)


def run_local_job(title: str, work: Callable[["JobWatch"], T]) -> tuple[T, int]:
    """Run `work` in this process, without Spark; otherwise as `run_job`."""
    # Only here: `--help` needs none of it.
    from partq.pipeline.watch import JobWatch

    with open_display(title) as display:
        watch = JobWatch(display.show, display.tell)
        with _signals(watch) as received:
            return _until_signal(display, lambda: work(watch), watch.stop, received)


class _BetweenSteps:
    """What signals mean before and after the job of a command."""

    is_done = False
    """Whether the job has returned: from then on its result is shown, whatever comes."""

    def note(self, number: int, _: object) -> None:
        """Raise before the job, which then never begins; ignore what comes after it."""
        if not self.is_done:
            raise _NotBegunError(number)


class _NotBegunError(BaseException):
    """A signal came before there was a job; no `except Exception` on the way may take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_between = _BetweenSteps()


def answers_signals(command: Callable[..., None]) -> Callable[..., None]:
    """Have SIGINT and SIGTERM end a command with a sentence before its job, and not after it.

    The exit status before it is that of shells, and `--json` prints an error of the code
    `stopped`. A signal that is ignored already stays ignored.
    """

    @wraps(command)
    def answering(**given: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            command(**given)  # of a test: its process keeps its handlers
            return
        _between.is_done = False
        before = {
            each: signal.signal(each, _between.note)
            for each in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(each) is not signal.SIG_IGN
        }
        try:
            command(**given)
        except (_NotBegunError, KeyboardInterrupt) as end:
            if _between.is_done:
                raise
            from partq.pipeline.watch import StoppedError

            error = StoppedError("stopped before the job began; nothing was changed")
            click.echo(f"partq: {error.message}", err=True)
            # Spark has a handler of Ctrl-C while its session begins.
            number = end.number if isinstance(end, _NotBegunError) else signal.SIGINT
            raise click.exceptions.Exit(128 + number) from error
        finally:
            _between.is_done = True
            if not interrupts.has_process():
                for number, handler in before.items():
                    signal.signal(number, handler)

    return answering


class _Received:
    """Which signal has come."""

    def __init__(self) -> None:
        self.number = 0
        self.has_job = False
        """Before, Spark is starting: there is nothing to end in order."""
        self.event = threading.Event()


@contextmanager
def _signals(watch: "JobWatch") -> Iterator[_Received]:
    """Turn the first SIGINT or SIGTERM into a stop of the job."""
    received = _Received()
    if threading.current_thread() is not threading.main_thread():
        yield received  # of a test: its process keeps its handlers
        return

    def note(number: int, _: object) -> None:
        if not received.has_job:
            raise _NotBegunError(number)
        if received.number:
            sys.exit(128 + number)
        received.number = number
        watch.stop()
        received.event.set()

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_signal(
    display: Display, work: Callable[[], T], stop: Callable[[], None], received: _Received
) -> tuple[T, int]:
    """Run `work` until it ends, and `stop` it when a signal comes; returns as `run_job`."""
    from partq.pipeline.watch import StoppedError

    received.has_job = True
    try:
        return _in_thread(work, stop, received), received.number
    except StoppedError as error:
        display.tell(error.message)
        raise click.exceptions.Exit(128 + received.number) from error
    finally:
        _between.is_done = True


def _in_thread(work: Callable[[], T], stop: Callable[[], None], received: _Received) -> T:
    """Run `work` in a thread, so that a signal never cuts into a call of the JVM or a file."""
    from partq.pipeline.watch import StoppedError

    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  raised again where it is awaited
            failure.append(error)
        finally:
            received.event.set()

    thread = threading.Thread(target=run, name="job", daemon=True)
    thread.start()
    received.event.wait()
    if received.number:
        stop()
    thread.join()
    if not failure:
        return outcome[0]
    if received.number and not isinstance(failure[0], StoppedError):
        # Whatever a cancelled job says, the cause is that it was cancelled.
        raise StoppedError("stopped before the end; what is durable stays") from failure[0]
    raise failure[0]


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """Read `KEY=VALUE`.

    Raises:
        SettingsError: one has no `=`, or nothing before it.
    """
    wrong = next((pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair), None)
    if wrong is not None:
        raise SettingsError(f"--conf: got {excerpt(wrong)!r}, expected KEY=VALUE")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
