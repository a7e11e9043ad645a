"""What an archive consists of: a pure record, made of numbered entries.

An entry says which files came, which went, and how far the archive is afterwards. The state after
entry N is that of entry N-1 with the changes of N, so everybody who reads the same entries sees the
same files: a file that no entry names does not belong to the archive.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, TypedDict, TypeVar, get_args

from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import InternalError

Stream = Literal["messages", "audit"]
STREAMS: tuple[Stream, ...] = get_args(Stream)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file, and the rows that it holds."""

    path: str
    """Below the root of the archive."""
    stream: Stream
    partition: str
    first: int
    """Its lowest offset; of the audit record, its lowest sequence."""
    stop: int
    """One above its highest."""
    rows: int
    bytes: int
    min_ms: int
    """When its first row was stored, in unix ms."""
    max_ms: int
    sha256: str = ""
    """Of the file, as hex; empty: the version of partq that wrote it took none."""

    @property
    def folder(self) -> str:
        """Where it is: stream, date and partition."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class ArchivePosition:
    """How far the archive is in one partition: everything below is in it."""

    offset: int
    append_broker_epoch: int = 0
    """Of what was stored right below; 0: unknown, or nothing was. Not for the audit record."""
    chain: str = ""
    """Of the audit record: the chain after the group right below; empty: unknown, as in entries of
    earlier versions of partq. Not for messages."""


@dataclass(frozen=True, slots=True)
class ArchiveGap:
    """Rows that the archive does not have: [first, stop).

    They were gone from the queue before the archive had them, or are undecodable messages.
    """

    stream: Stream
    partition: str
    first: int
    stop: int
    undecodable_path: str = ""
    """Of undecodable messages: the file below the root that has their batch, as it was stored;
    empty: the rows were gone."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A partition whose slots went to another one by a change of the partition count."""

    slots: tuple[tuple[int, int], ...]
    """What went to the other one, in ranges."""
    sealed_at: int | None
    """The end of its log when the slots left it; None: not known yet, and in no entry."""


Positions = Mapping[Stream, Mapping[str, ArchivePosition]]
Beginnings = Mapping[Stream, Mapping[str, int]]
ArchivedLineage = Mapping[str, Mapping[str, Predecessor]]
"""Partition → all its predecessors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One change of an archive."""

    number: int
    """Consecutive, from 1."""
    attempt: str
    """Random: tells a repeat of its writer from somebody else's entry."""
    kind: Literal["archive", "compact", "sweep"]
    at_ms: int
    """By the clock of its writer."""
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    """Files that readers leave out from now on; readers that began before still find them."""
    deleted: tuple[str, ...] = ()
    """Removed files that are really gone."""
    positions: Positions = field(default_factory=dict)
    gaps: tuple[ArchiveGap, ...] = ()
    beginnings: Beginnings = field(default_factory=dict)
    """Every partition that the queue had, and where the archive of it begins. Each entry names all
    of them, so that no lost or changed entry makes a partition unknown."""
    uid: str = ""
    """Of the queue; empty: the version of partq that wrote the entry did not say."""
    lineage: ArchivedLineage = field(default_factory=dict)
    """Of partitions that a change of the partition count made; no earlier entry names them."""

    def to_json(self) -> bytes:
        """Return it as it is stored."""
        return _stored(self)

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Self:
        """Read what `to_json` made.

        Raises:
            InternalError: it is something else; `name` says where it stands.
        """
        try:
            body = json.loads(data)
            return cls(
                number=_natural("number", body["number"]),
                attempt=str(body["attempt"]),
                kind=body["kind"],
                at_ms=_natural("at_ms", body["at_ms"]),
                added=tuple(_record(DataFile, each) for each in body["added"]),
                removed=tuple(map(_path_inside, body["removed"])),
                deleted=tuple(map(_path_inside, body["deleted"])),
                positions=_positions(body["positions"]),
                gaps=tuple(_record(ArchiveGap, each) for each in body["gaps"]),
                beginnings=_beginnings(body.get("beginnings", {})),
                uid=str(body.get("uid", "")),
                lineage=_lineage(body.get("lineage", {})),
            )
        except _WRONG_BODY as error:
            raise _damaged(name, error) from error


@dataclass(slots=True)
class ArchiveState:
    """An archive after an entry."""

    number: int = 0
    """Number of the last entry; 0: no entry yet."""
    files: dict[str, DataFile] = field(default_factory=dict)
    """What readers read: path → file."""
    removed: dict[str, int] = field(default_factory=dict)
    """What nobody may begin to read: path → when it was removed, in unix ms."""
    positions: dict[Stream, dict[str, ArchivePosition]] = field(default_factory=dict)
    gaps: list[ArchiveGap] = field(default_factory=list)
    beginnings: dict[Stream, dict[str, int]] = field(default_factory=dict)
    """Where the archive begins, of every partition that an entry names."""
    uids: list[str] = field(default_factory=list)
    """The queues that entries say they are of: one, unless something is wrong."""
    lineage: dict[str, Mapping[str, Predecessor]] = field(default_factory=dict)
    """What entries say of it. A partition of a later generation that is missing has predecessors
    that are not known."""

    def apply(self, entry: ManifestEntry) -> None:
        """Become what the archive is after `entry`.

        Raises:
            InternalError: it is not the next one, or names files that are not there.
        """
        if entry.number != self.number + 1:
            raise InternalError(
                f"archive: entry {entry.number} follows entry {self.number}; expected "
                f"{self.number + 1}: files of the archive's log are missing; put them back into "
                "_partq/log from a copy of the archive, or archive to another ROOT. "
                "`partq pipeline audit` names them"
            )
        unknown = [path for path in entry.removed if path not in self.files]
        unknown += [path for path in entry.deleted if path not in self.removed]
        unknown += [each.path for each in entry.added if each.path in self.files]
        unknown += [
            f"the beginning of partition {partition}"
            for stream, firsts in entry.beginnings.items()
            for partition, first in firsts.items()
            if self.beginnings.get(stream, {}).get(partition, first) != first
        ]
        if unknown:
            raise InternalError(
                f"archive: entry {entry.number} does not fit what was before, at {unknown[0]}: "
                "its log is damaged"
            )
        self.number = entry.number
        for path in dict.fromkeys(entry.removed):
            del self.files[path]
            self.removed[path] = entry.at_ms
        for path in dict.fromkeys(entry.deleted):
            del self.removed[path]
        self.files |= {each.path: each for each in entry.added}
        for stream, positions in entry.positions.items():
            self.positions.setdefault(stream, {}).update(positions)
        for stream, firsts in entry.beginnings.items():
            self.beginnings.setdefault(stream, {}).update(firsts)
        if entry.uid and entry.uid not in self.uids:
            self.uids.append(entry.uid)
        self.lineage |= entry.lineage
        self.gaps += entry.gaps

    def to_json(self) -> bytes:
        """Return it as it is stored."""
        return _stored(self)

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Self:
        """Read what `to_json` made; raises as `ManifestEntry.from_json`."""
        try:
            body = json.loads(data)
            return cls(
                number=_natural("number", body["number"]),
                files={
                    (file := _record(DataFile, each)).path: file for each in body["files"].values()
                },
                removed={
                    _path_inside(path): _natural("removed", at)
                    for path, at in body["removed"].items()
                },
                positions=_positions(body["positions"]),
                gaps=[_record(ArchiveGap, each) for each in body["gaps"]],
                beginnings=_beginnings(body.get("beginnings", {})),
                uids=list(map(str, body.get("uids", []))),
                lineage=_lineage(body.get("lineage", {})),
            )
        except _WRONG_BODY as error:
            raise _damaged(name, error) from error


def select(
    files: Iterable[DataFile],
    stream: Stream,
    *,
    partitions: Iterable[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> list[DataFile]:
    """Return the files that may hold rows of a stream, in the order of partition and offset.

    Args:
        files: to choose from.
        stream: which rows.
        partitions: only of these; None: of all.
        from_ms: only with rows that were stored then or later, in unix ms.
        until_ms: only with rows that were stored before.
    """
    wanted = None if partitions is None else set(partitions)
    found = [
        each
        for each in files
        if each.stream == stream
        and (wanted is None or each.partition in wanted)
        and (from_ms is None or each.max_ms >= from_ms)
        and (until_ms is None or each.min_ms < until_ms)
    ]
    return sorted(found, key=lambda each: (PartitionId.parse(each.partition), each.first))


_WRONG_BODY = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a body of another form raises."""


def _stored(record: ManifestEntry | ArchiveState) -> bytes:
    """Return an entry or a state as JSON.

    Versions of partq that know no undecodable messages read what has none, and refuse what has.
    An archive of a queue whose partition count has never changed is as it was before there were
    changes.
    """
    body = asdict(record)
    for gap in body["gaps"]:
        if not gap["undecodable_path"]:
            del gap["undecodable_path"]
    if not body["lineage"]:
        del body["lineage"]
    return json.dumps(body).encode()


_Record = TypeVar("_Record", DataFile, ArchiveGap, ArchivePosition)


def _positions(body: Any) -> dict[Stream, dict[str, ArchivePosition]]:
    return {
        _stream(stream): {
            _partition(name): _record(ArchivePosition, each) for name, each in positions.items()
        }
        for stream, positions in body.items()
    }


def _beginnings(body: Any) -> dict[Stream, dict[str, int]]:
    return {
        _stream(stream): {_partition(name): _natural(name, first) for name, first in firsts.items()}
        for stream, firsts in body.items()
    }


class _PredecessorForm(TypedDict):
    slots: list[tuple[object, object]]
    sealed_at: object


def _lineage(
    body: Mapping[str, Mapping[str, _PredecessorForm]],
) -> dict[str, Mapping[str, Predecessor]]:
    return {
        _partition(name): {_partition(each): _predecessor(told) for each, told in given.items()}
        for name, given in body.items()
    }


def _predecessor(body: _PredecessorForm) -> Predecessor:
    slots = tuple(
        (_natural("slots", start), _natural("slots", stop)) for start, stop in body["slots"]
    )
    if not all(start < stop <= SLOT_COUNT for start, stop in slots):
        raise ValueError(f"slots: got {slots}, expected ranges of {SLOT_COUNT} slots")
    return Predecessor(slots, _natural("sealed_at", body["sealed_at"]))


def _record(kind: type[_Record], body: Mapping[str, object]) -> _Record:
    """Return a record with values of the right kind; a ValueError or TypeError says which is not.

    A path stays below the root: other jobs read and delete what stands in it.
    """
    found = kind(**body)  # type: ignore[arg-type]  # checked below
    for each in fields(found):
        value = getattr(found, each.name)
        if each.type is int:
            _natural(each.name, value)
        elif not isinstance(value, str):
            raise TypeError(f"{each.name}: got {value!r}, expected a text")
    if isinstance(found, ArchivePosition):
        return found
    _stream(found.stream)
    _partition(found.partition)
    if found.first >= found.stop:
        raise ValueError(f"first {found.first}, stop {found.stop}: expected first below stop")
    if isinstance(found, DataFile):
        _path_inside(found.path)
    elif found.undecodable_path:
        _path_inside(found.undecodable_path)
    return found


def _natural(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"{name}: got {value!r}, expected a number from 0 to 2^63 - 1")
    return value


def _stream(name: str) -> Stream:
    if name not in STREAMS:
        raise ValueError(f"stream {name!r}: expected {' or '.join(STREAMS)}")
    return name


def _partition(name: str) -> str:
    """Return the name of a partition, or raise a ValueError."""
    return str(PartitionId.parse(name))


def _path_inside(path: object) -> str:
    """Return a path below the root of an archive, or raise a ValueError."""
    if (
        not isinstance(path, str)
        or not path.isprintable()
        or any(part in ("", ".", "..") for part in path.split("/"))
    ):
        raise ValueError(f"path {path!r}: expected one below ROOT, such as messages/a.parquet")
    return path


def _damaged(name: str, error: Exception) -> InternalError:
    return InternalError(
        f"{name}: is damaged ({error!r}); expected what `partq pipeline` wrote there: put the file "
        "back from a copy of the archive"
    )
