"""The end of `partq demo --with-audit`: archives and audits the queue, as a user would do it."""

import asyncio
import importlib.util
import json
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from partq.client.audit_reader import AuditReader
from partq.embedded.runtime import RunningQueue
from partq.embedded.tether import tethered
from partq.errors import InternalError, SettingsError, UnavailableError
from partq.lab.demo.inspection import Inspection
from partq.lab.demo.record import DeliveryRecord, unrecorded
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.spark.java import find_java
from partq.wire.audit import decode_columns

ARCHIVE_GROUP: Final = "archive"
"""The group whose cursors the archive moves: it keeps the brokers from trimming before."""
_ARROW_PACKAGES: Final = ("pyarrow", "numpy", "matplotlib")
TIMEOUT_S: Final = 900.0
_LEAVE_S: Final = 10.0
_OURS: Final = ("partq:", "archive:", "audit:")
"""How lines of progress begin; the others are Java's and Spark's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionPlan:
    """How a run is archived and audited at its end."""

    engine: Literal["arrow", "spark"]
    """What the jobs run on."""
    report: Path
    """The folder for the audit's report."""


def require_engine(engine: Literal["arrow", "spark"]) -> None:
    """See that the jobs can run, before minutes are spent on what comes before them.

    Raises:
        SettingsError: a package is not installed, or there is no Java for Spark.
    """
    if engine == "arrow":
        lacking = [name for name in _ARROW_PACKAGES if importlib.util.find_spec(name) is None]
        if lacking:
            raise SettingsError(
                f"--with-audit needs {lacking[0]}: in a checkout of partq, "
                "pip install -e '.[lab,pipeline]'"
            )
        return
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        raise SettingsError(
            "--with-spark needs Spark: in a checkout of partq, pip install -e '.[lab,spark]'"
        )
    try:
        find_java()
    except UnavailableError as error:
        raise SettingsError(f"--with-spark: {error.message}") from error


async def inspect(
    queue: RunningQueue,
    deliveries: Sequence[DeliveredRow],
    *,
    group: str,
    directory: Path,
    plan: InspectionPlan,
    note: Callable[[str], None],
) -> Inspection:
    """Archive a queue that nobody consumes any more to `directory`, and audit it.

    Args:
        queue: with its brokers.
        deliveries: what the consumers' journals have as processed.
        group: the consumers'.
        directory: for the archive.
        plan: how.
        note: gets the jobs' progress, a line at a time.

    Raises:
        InternalError: a job failed; its words are in the message.
        PartqError: the brokers do not give the record out.
    """
    began = time.monotonic()
    # Before it is archived: what was archived of the record is trimmed.
    unknown, findings = unrecorded(deliveries, await _record(queue, group))
    root = str(directory / "archive")
    environment = _environment(queue)
    on = ["--engine", plan.engine]
    archiving = ["archive", root, "--group", ARCHIVE_GROUP, "--once", "--audit", *on]
    archive = await run_job(archiving, environment, note)
    auditing = ["audit", root, "--report", str(plan.report), *on]
    audit = await run_job(auditing, environment, note)
    return Inspection(
        archive=archive,
        audit=audit,
        unrecorded=unknown,
        findings=tuple(findings),
        took_s=time.monotonic() - began,
    )


async def change_count(queue: RunningQueue, partition_count: int) -> None:
    """Change the partition count of a queue, as an administrator does it.

    Raises:
        InternalError: it was refused; the words of the command are in the message.
    """
    arguments = ["rescale", "--partitions", str(partition_count)]
    await _run_command(arguments, _environment(queue), lambda _: None)


def _environment(queue: RunningQueue) -> dict[str, str]:
    """Return what tells a command of partq where a queue is."""
    return {
        "PARTQ_URL": queue.url,
        "PARTQ_QUEUE": queue.name,
        "PARTQ_NAMESPACE": queue.namespace,
        "PARTQ_TOKEN": queue.tokens.admin,
    }


async def _record(queue: RunningQueue, group: str) -> DeliveryRecord:
    record = DeliveryRecord(group)
    reader = AuditReader(
        queue.url, queue=queue.name, token=queue.tokens.admin, namespace=queue.namespace
    )
    async with reader:
        for partition, bounds in (await reader.bounds()).items():
            groups = [each async for each in reader.groups(partition, bounds.first)]
            record.add(decode_columns(partition, groups))
    return record


async def run_job(
    arguments: Sequence[str], environment: Mapping[str, str], note: Callable[[str], None]
) -> dict[str, object]:
    """Run `partq pipeline` with these arguments and `--json`, and return what it prints.

    `environment` is added to this process's. A job that found something to complain of, and says
    so by its status, is no failure.

    Raises:
        InternalError: it failed, or did not end in time; its last words are in the message.
    """
    return await _run_command(["pipeline", *arguments], environment, note)


async def _run_command(
    arguments: Sequence[str], environment: Mapping[str, str], note: Callable[[str], None]
) -> dict[str, object]:
    """Run `partq` with these arguments and `--json`, and return what it prints.

    Raises:
        InternalError: it failed, or did not end in time; its last words are in the message.
    """
    name = f"partq {' '.join(arguments[:2])}"
    process = await asyncio.create_subprocess_exec(
        *tethered(sys.executable, "-m", "partq.cli.main", *arguments, "--json"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    words: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT_S):
            printed, _ = await asyncio.gather(_all_of(process), _pass_on(process, words, note))
            status = await process.wait()
    except TimeoutError:
        raise InternalError(f"{name}: no end after {TIMEOUT_S:g} s: {_last(words)}") from None
    finally:
        await _end(process)
    try:
        answer = json.loads(printed)
    except ValueError:
        raise InternalError(f"{name} ended with status {status}: {_last(words)}") from None
    if not isinstance(answer, dict) or status not in (0, 1) or "error" in answer:
        raise InternalError(f"{name} ended with status {status}: {_last(words)}")
    return answer


async def _all_of(process: Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    return await process.stdout.read()


async def _pass_on(process: Process, words: list[str], note: Callable[[str], None]) -> None:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    async for line in process.stderr:
        text = line.decode(errors="replace").strip()
        words.append(text)
        if text.startswith(_OURS):
            note(text)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_LEAVE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _last(words: Sequence[str]) -> str:
    return "\n".join(words[-10:]) or "it said nothing"
