"""The log of an archive: who may write, what counts, and how two writers never both succeed.

    _partq/archive.json        which queue this is the archive of
    _partq/log/N.json          entry N; made once, never changed
    _partq/snapshots/N.json    the state after entry N, so that not all entries have to be read
    _partq/staging/ATTEMPT/    what a job has not put in place yet

An entry is what makes a change of the archive happen, all of it in one moment: its file is created
under the next number, which fails when somebody else has taken that number. A crash before leaves
files that nobody reads; a crash after has nothing left to do that cannot be repeated.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from partq.errors import ConflictError, InternalError, SettingsError
from partq.pipeline.manifest import ArchiveState, ManifestEntry
from partq.pipeline.storage.files import Files

FORMAT = 1
STATE = "_partq"
HEADER = f"{STATE}/archive.json"
LOG = f"{STATE}/log"
SNAPSHOTS = f"{STATE}/snapshots"
STAGING = f"{STATE}/staging"
SNAPSHOT_EVERY = 50
"""Entries between two snapshots."""
MAX_TRIES = 20
"""How often a change is tried again when another job was faster, and how often a log is read."""


@dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """One life of a queue."""

    namespace: str
    queue: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.queue} (uid {self.uid})"


class ArchiveLog:
    """Reads and changes what an archive consists of."""

    def __init__(self, files: Files, identity: ArchivedQueue) -> None:
        self.files = files
        self.identity = identity

    @classmethod
    def open(cls, files: Files) -> "ArchiveLog":
        """Open an archive that is there.

        Raises:
            SettingsError: no archive is there, it lacks its header, or it is of a later version.
        """
        header = files.read(HEADER)
        if header is None:
            _refuse_without_header(files)
            raise SettingsError(
                f"ROOT {files.root}: there is no archive; expected one that "
                "`partq pipeline archive` made"
            )
        try:
            return cls(files, read_header(files.root, header))
        except ValueError as error:
            raise SettingsError(
                f"{files.root}/{HEADER}: is damaged ({error}); expected what `partq pipeline` "
                "wrote: put the file back from a copy of the archive"
            ) from error

    @classmethod
    def open_for(cls, files: Files, identity: ArchivedQueue) -> "ArchiveLog":
        """Open the archive of a queue; make it, where there is nothing yet.

        Raises:
            SettingsError: it is another queue's, or another life's of this one, it has entries
                and lacks the file that names its queue, or it cannot be written.
        """
        body = json.dumps({"format": FORMAT, **asdict(identity)}).encode()
        if files.read(HEADER) is None:
            _refuse_without_header(files)
            files.create(HEADER, body)
        archive = cls.open(files)
        if archive.identity != identity:
            raise SettingsError(
                f"ROOT {files.root}: is the archive of {archive.identity}, and the queue is "
                f"{identity}; give each life of a queue a separate ROOT"
            )
        return archive

    def load(self) -> ArchiveState:
        """Return the archive as it is now.

        Raises:
            InternalError: the log is damaged.
        """
        for _ in range(MAX_TRIES):
            state = self._load()
            if state is not None:
                return state
        raise InternalError(f"{self.files.root}/{LOG}: entries go faster than they can be read")

    def commit(
        self, state: ArchiveState, make: Callable[[ArchiveState], ManifestEntry | None]
    ) -> ArchiveState:
        """Change the archive by one entry, and return what it is then.

        Args:
            state: as it was loaded, and is taken to be still.
            make: returns the entry for a state, whatever its number; None: there is nothing to
                change. It is called again with a later state when another job was faster, and
                raises if that one leaves no place for the change.

        Raises:
            ConflictError: other jobs were faster again and again; nothing is changed.
        """
        for _ in range(MAX_TRIES):
            wanted = make(state)
            if wanted is None:
                return state
            entry = replace(wanted, number=state.number + 1, uid=self.identity.uid)
            path = _entry_path(entry.number)
            is_ours = self.files.create(path, entry.to_json())
            if not is_ours:
                # Perhaps it was us: a file system that gave no answer may have done it.
                there = self.files.read(path)
                is_ours = there is not None and (
                    ManifestEntry.from_json(path, there).attempt == entry.attempt
                )
            if is_ours:
                state.apply(entry)
                if state.number % SNAPSHOT_EVERY == 0:
                    self.files.create(f"{SNAPSHOTS}/{entry_name(state.number)}", state.to_json())
                return state
            state = self.load()
        raise ConflictError(
            f"ROOT {self.files.root}: other jobs change it all the time; let one of them end first"
        )

    def forget_old_entries(self) -> None:
        """Delete entries and snapshots that no reader needs: those below the last but one."""
        numbers = [entry_number(name) for name in self.files.names(SNAPSHOTS)]
        if len(numbers) < 2:
            return
        kept = numbers[-2]
        # Snapshots last: without one, the entries that it stands for would be needed.
        for name in self.files.names(LOG):
            if entry_number(name) <= kept:
                self.files.remove(f"{LOG}/{name}")
        for number in numbers[:-2]:
            self.files.remove(f"{SNAPSHOTS}/{entry_name(number)}")

    def _load(self) -> ArchiveState | None:
        """Read the last snapshot and what follows it; None: it went away meanwhile."""
        state = ArchiveState()
        snapshots = self.files.names(SNAPSHOTS)
        if snapshots:
            path = f"{SNAPSHOTS}/{snapshots[-1]}"
            data = self.files.read(path)
            if data is None:
                return None
            state = ArchiveState.from_json(path, data)
        for name in self.files.names(LOG):
            if entry_number(name) <= state.number:
                continue
            if entry_number(name) > state.number + 1 and self.files.names(SNAPSHOTS) != snapshots:
                return None
            data = self.files.read(f"{LOG}/{name}")
            if data is None:
                return None
            state.apply(ManifestEntry.from_json(name, data))
        return state


def _refuse_without_header(files: Files) -> None:
    """Refuse an archive that has entries, and does not say of which queue.

    Two jobs may make an archive at the same moment, and one of them then writes the first entry.
    So the entries are looked for first, and the header once more.
    """
    if (files.names(LOG) or files.names(SNAPSHOTS)) and files.read(HEADER) is None:
        raise SettingsError(
            f"ROOT {files.root}: {HEADER} is missing, and there are entries of an archive; "
            "expected the file that names its queue: put it back from a copy of the archive, or "
            "give another ROOT"
        )


def read_header(root: str, header: bytes) -> ArchivedQueue:
    """Return the queue that the header of an archive names.

    Raises:
        SettingsError: the archive is of a later version; `root` says which archive.
        ValueError: the header is damaged.
    """
    try:
        body = json.loads(header)
        written = body.pop("format")
        identity = ArchivedQueue(**body) if written == FORMAT else None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(repr(error)) from error
    if identity is None and type(written) is int:
        raise SettingsError(
            f"ROOT {root}: is an archive of format {written}, expected {FORMAT}; use the "
            "version of partq that wrote it"
        )
    if identity is None or not all(isinstance(each, str) for each in asdict(identity).values()):
        raise ValueError("a value of another kind")
    return identity


def _entry_path(number: int) -> str:
    return f"{LOG}/{entry_name(number)}"


def entry_name(number: int) -> str:
    """Return the name of the file of an entry, or of the snapshot after it."""
    return f"{number:012d}.json"


def entry_number(name: str) -> int:
    """Return the number that the name of an entry or snapshot tells.

    Raises:
        InternalError: it tells none.
    """
    number, _, kind = name.partition(".")
    if kind != "json" or not number.isdecimal():
        raise InternalError(f"{name}: not a file of an archive's log; remove it")
    return int(number)
