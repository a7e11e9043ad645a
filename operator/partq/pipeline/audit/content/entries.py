"""Reads the log of an archive although files of it are missing or damaged, and says which.

Other jobs refuse such an archive. An audit judges what is left, so that its verdict names all that
is wrong.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from partq.errors import InternalError
from partq.pipeline.archive_log import (
    HEADER,
    LOG,
    MAX_TRIES,
    SNAPSHOTS,
    ArchivedQueue,
    ArchiveLog,
    entry_name,
    entry_number,
    read_header,
)
from partq.pipeline.audit.judge.finding import EXTENT, AuditFinding, finding
from partq.pipeline.manifest import ArchiveState, ManifestEntry
from partq.pipeline.storage.files import Files

WHOLE_ARCHIVE = ""
"""Stands for the partition in a finding about no single one."""


@dataclass(slots=True)
class AuditedLog:
    """What the log of an archive says, as far as it can be read."""

    identity: ArchivedQueue | None = None
    """The queue that its header names; None: there is no header that can be read."""
    state: ArchiveState = field(default_factory=ArchiveState)
    findings: list[AuditFinding] = field(default_factory=list)

    def note(self, what: str, detail: str) -> None:
        """Add a finding on the archive as a whole."""
        self.findings.append(finding(EXTENT, what, WHOLE_ARCHIVE, detail))


def read_log(files: Files) -> AuditedLog:
    """Return what an archive consists of, and what is wrong with its log.

    Raises:
        SettingsError: there is no archive, or it is of a later version.
        InternalError: other jobs change the log faster than it can be read.
    """
    for _ in range(MAX_TRIES):
        found = _EntryReader(files).read()
        if found is not None:
            _read_header(files, found)
            return found
    raise InternalError(f"{files.root}/{LOG}: entries go faster than they can be read")


def _read_header(files: Files, log: AuditedLog) -> None:
    header = files.read(HEADER)
    if header is None and not log.state.number:
        ArchiveLog.open(files)  # says that there is no archive
    try:
        log.identity = None if header is None else read_header(files.root, header)
    except ValueError as error:
        log.note("damaged_entry", f"{HEADER} is damaged: {error}")
    if header is None:
        log.note("missing_entry", f"{HEADER} is missing: it names the queue of the archive")


class _EntryReader:
    """Reads the entries behind the last snapshot but one, and compares the last one with them.

    Entries before that may have been deleted (`ArchiveLog.forget_old_entries`).
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._found = AuditedLog()
        self._is_sure = True
        """Nothing is missing or damaged so far, so an entry that does not fit is damaged."""

    def read(self) -> AuditedLog | None:
        """Return what was found; None: another job has deleted entries meanwhile."""
        names = self._files.names(SNAPSHOTS)
        snapshots = self._numbers(SNAPSHOTS, names)
        states: dict[int, ArchiveState] = {}
        for number in snapshots[-2:]:
            data = self._files.read(f"{SNAPSHOTS}/{entry_name(number)}")
            if data is None:
                return None
            if (state := self._snapshot(number, data)) is not None:
                states[number] = state
        last = max(states, default=0)
        base = snapshots[-2] if len(snapshots) > 1 else 0
        self._found.state = deepcopy(states[base]) if base in states else ArchiveState()
        for number in self._numbers(LOG, self._files.names(LOG)):
            if number <= self._found.state.number:
                continue
            self._skip_to(number, states.get(last))
            if number <= self._found.state.number:
                continue
            data = self._files.read(f"{LOG}/{entry_name(number)}")
            if data is None:
                return None
            self._apply(number, data)
            if number == last:
                self._compare(states[last])
        if self._found.state.number < last:
            self._skip_to(last + 1, states[last])
        return self._found if self._files.names(SNAPSHOTS) == names else None

    def _numbers(self, folder: str, names: Iterable[str]) -> list[int]:
        numbers = []
        for name in names:
            try:
                numbers.append(entry_number(name))
            except InternalError:
                self._damaged(f"{folder}/{name} does not belong to an archive's log")
        return sorted(numbers)

    def _snapshot(self, number: int, data: bytes) -> ArchiveState | None:
        path = f"{SNAPSHOTS}/{entry_name(number)}"
        try:
            state = ArchiveState.from_json(path, data)
        except InternalError as error:
            self._damaged(error.message)
            return None
        if state.number != number:
            self._damaged(f"{path}: is damaged: it names itself {state.number}")
            return None
        return state

    def _skip_to(self, number: int, snapshot: ArchiveState | None) -> None:
        """Note which entries are missing before one, and continue from a snapshot behind them."""
        state = self._found.state
        first, stop = state.number + 1, number
        if first == stop:
            return
        self._is_sure = False
        names = f"{LOG}/{entry_name(first)}"
        names += f" to {entry_name(stop - 1)} are" if stop - first > 1 else " is"
        self._found.note(
            "missing_entry",
            f"{names} missing: which files {'they' if stop - first > 1 else 'it'} named is not "
            "known, unless a snapshot tells it",
        )
        if snapshot is not None and first <= snapshot.number:
            self._found.state, self._is_sure = deepcopy(snapshot), True
        else:
            state.number = number - 1

    def _apply(self, number: int, data: bytes) -> None:
        state, path = self._found.state, f"{LOG}/{entry_name(number)}"
        try:
            entry = ManifestEntry.from_json(path, data)
        except InternalError as error:
            self._damaged(error.message)
            state.number = number
            return
        if self._is_sure:
            try:
                state.apply(entry)
                return
            except InternalError as error:
                self._damaged(f"{path}: {error.message}")
        # What fits counts.
        firsts = {stream: state.beginnings.get(stream, {}) for stream in entry.beginnings}
        state.apply(
            replace(
                entry,
                number=number,
                added=tuple(each for each in entry.added if each.path not in state.files),
                removed=tuple(path for path in entry.removed if path in state.files),
                deleted=tuple(path for path in entry.deleted if path in state.removed),
                beginnings={
                    stream: dict(named) | dict(firsts[stream])
                    for stream, named in entry.beginnings.items()
                },
            )
        )

    def _compare(self, snapshot: ArchiveState) -> None:
        """Continue from a snapshot, as other jobs do; it says the same as the entries."""
        if self._is_sure and self._found.state != snapshot:
            path = f"{SNAPSHOTS}/{entry_name(snapshot.number)}"
            self._damaged(f"{path} is not what the entries up to it give")
        self._found.state, self._is_sure = deepcopy(snapshot), True

    def _damaged(self, detail: str) -> None:
        self._found.note("damaged_entry", detail)
        self._is_sure = False
