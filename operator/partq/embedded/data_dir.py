"""Files of an embedded runtime: the running process, each queue's uid and tokens, paths.

    DIR/lock                        held by the runtime that runs on this directory
    DIR/dev.json                    while it runs: URLs and tokens, for the other commands
    DIR/redis/                      Redis's data, its configuration, and which server wrote it
    DIR/queues/NAMESPACE.QUEUE/     uid, tokens.json (for the brokers), admin.token
    DIR/logs/                       one log per process

Directories are made for their owner only; files with tokens or passwords have the mode 0600.
"""

import fcntl
import json
import os
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from partq.broker.api.tokens import read_grants
from partq.errors import SettingsError

MAX_STATE_BYTES = 1024 * 1024
_IDENTITY = "identity.json"


@dataclass(frozen=True, slots=True)
class QueueTokens:
    """The bearer tokens of one queue, one per role."""

    produce: str
    consume: str
    admin: str

    @classmethod
    def draw(cls) -> Self:
        """Return new ones, of hexadecimal digits: none begins with a `-`, like an option does."""
        return cls(*(secrets.token_hex(24) for _ in range(3)))


@dataclass(frozen=True, slots=True)
class QueueIdentity:
    """The identity of a queue, from its first start on."""

    uid: str
    """First 8 characters of a uuid, which stands for the uid of a Kubernetes resource."""
    tokens: QueueTokens
    tokens_file: Path
    """What brokers read."""
    admin_token_file: Path
    """What the coordinator reads."""
    is_made: bool = False
    """Whether Redis has held the queue: it has been served from here."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """How to reach a queue of a runtime that runs."""

    namespace: str
    name: str
    url: str
    """The brokers' URLs with commas between them, as the clients take it."""
    groups: tuple[str, ...]
    tokens: QueueTokens


class DataDir:
    """One directory; held by at most one runtime at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: IO[str] | None = None

    @property
    def redis(self) -> Path:
        """Where Redis keeps its data."""
        return self.path / "redis"

    def log(self, process: str) -> Path:
        """Return the log file of a process."""
        return self.path / "logs" / f"{process}.log"

    def refuse_if_held(self) -> None:
        """Look whether another runtime holds the directory, and write nothing.

        Raises:
            SettingsError: one does, or the lock cannot be read.
        """
        if (self.path / "lock").exists() and is_held(self.path):
            raise self._held_by((self.path / "lock").read_text(encoding="ascii"))

    def _held_by(self, lock: str) -> SettingsError:
        return SettingsError(
            f"data directory {self.path}: process {lock[:20].strip() or '?'} is using it; "
            "stop that one, or give another --data-dir"
        )

    def make(self) -> None:
        """Make the directory, for its owner only; one that is there stays as it is.

        Raises:
            SettingsError: it cannot be made.
        """
        if self.path.exists() and not self.path.is_dir():
            raise SettingsError(f"data directory {self.path}: not a directory; name another path")
        try:
            for directory in (self.path, self.path / "queues", self.redis, self.path / "logs"):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"data directory {self.path}: {error.strerror}") from error

    def hold(self) -> None:
        """Take the directory, making it if need be, until `let_go` or the end of the process.

        Raises:
            SettingsError: another runtime holds it, or it cannot be written.
        """
        self.make()
        try:
            lock = (self.path / "lock").open("a+", encoding="ascii")
        except OSError as error:
            raise SettingsError(f"data directory {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(20)
            lock.close()
            raise self._held_by(holder) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def let_go(self) -> None:
        """Give the directory back; repeats are harmless."""
        if self._lock is not None:
            (self.path / "dev.json").unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def identity(self, namespace: str, queue: str) -> QueueIdentity:
        """Return the uid and tokens of a queue, drawn at its first start and kept from then on.

        Raises:
            SettingsError: the files that hold them are damaged; nothing was written.
        """
        # Neither part holds a dot: both are DNS labels.
        directory = self.path / "queues" / f"{namespace}.{queue}"
        directory.mkdir(mode=0o700, exist_ok=True)
        tokens_file, admin_file = directory / "tokens.json", directory / "admin.token"
        kept_file = directory / _IDENTITY
        if kept_file.exists():
            kept = _read_json(kept_file)
            try:
                uid, tokens = str(kept["uid"]), _tokens(kept["tokens"])
                is_made = bool(kept.get("is_made", False))
            except (KeyError, TypeError) as error:
                raise SettingsError(
                    f"{kept_file}: got no {error}, expected uid and tokens; "
                    "restore the file, or remove the data directory with all its messages"
                ) from error
        else:
            tokens_file.unlink(missing_ok=True)  # of an earlier life, whose tokens are void
            uid, tokens, is_made = uuid.uuid4().hex[:8], QueueTokens.draw(), False
            write_private(kept_file, json.dumps({"uid": uid, "tokens": _roles(tokens)}))
        identity = QueueIdentity(uid, tokens, tokens_file, admin_file, is_made=is_made)
        self.grant(identity, queue, ())
        write_private(admin_file, tokens.admin + "\n")
        return identity

    def made(self, identity: QueueIdentity) -> None:
        """Note that Redis holds a queue: from now on one without it is another Redis."""
        if not identity.is_made:
            kept = {"uid": identity.uid, "tokens": _roles(identity.tokens), "is_made": True}
            write_private(identity.tokens_file.parent / _IDENTITY, json.dumps(kept))

    def grant(self, identity: QueueIdentity, queue: str, groups: Sequence[str]) -> None:
        """Write what brokers read; the consumers' token is for each of the groups by name, too.

        So it moves their cursors: a runtime for one person needs no token per group. Tokens that
        were added to the file by hand stay there.

        Raises:
            SettingsError: the file is not one of tokens any more; it is as it was.
        """
        roles = _roles(identity.tokens).items()
        grants: list[dict[str, object]] = [
            {"token": token, "queue": queue, "role": role} for role, token in roles
        ]
        if groups:
            named = {"token": identity.tokens.consume, "queue": queue, "role": "consume"}
            grants.append({**named, "groups": list(groups)})
        grants += _added(identity.tokens_file, identity.tokens)
        write_private(identity.tokens_file, json.dumps(grants, indent=2))

    def redis_password(self) -> str:
        """Return the password of the embedded Redis, drawn at the first start.

        Loopback is open to every user of the machine; the data is not.
        """
        file = self.redis / "password"
        if not file.exists():
            write_private(file, secrets.token_hex(24))
        return file.read_text(encoding="ascii").strip()

    def publish_state(self, queues: list[QueueState]) -> None:
        """Tell the other commands where the queues are, until `let_go`."""
        state = {
            "pid": os.getpid(),
            "queues": [
                {
                    "namespace": queue.namespace,
                    "name": queue.name,
                    "url": queue.url,
                    "groups": list(queue.groups),
                    "tokens": _roles(queue.tokens),
                }
                for queue in queues
            ],
        }
        write_private(self.path / "dev.json", json.dumps(state, indent=2) + "\n")


def read_state(directory: Path) -> list[QueueState]:
    """Return the queues of the runtime that runs on a data directory; none when none runs.

    Raises:
        SettingsError: its state file is damaged or not readable.
    """
    file = directory / "dev.json"
    if not file.exists() or not is_held(directory):
        return []  # a runtime that was killed leaves its file behind
    state = _read_json(file)
    try:
        return [
            QueueState(
                str(queue["namespace"]),
                str(queue["name"]),
                str(queue["url"]),
                tuple(map(str, queue["groups"])),
                _tokens(queue["tokens"]),
            )
            for queue in state["queues"]
        ]
    except (KeyError, TypeError) as error:
        raise SettingsError(
            f"{file}: got no {error}, expected the state that `partq dev up` writes"
        ) from error


def write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone can read, as a whole or not at all."""
    draft = file.with_name(file.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)


def read_pid(directory: Path) -> int | None:
    """Return the pid of the runtime that has written the state file last; it may have ended."""
    try:
        return int(_read_json(directory / "dev.json")["pid"])
    except (SettingsError, KeyError, TypeError, ValueError):
        return None  # not written yet, or of another version


def is_held(directory: Path) -> bool:
    """Say whether a runtime holds a data directory that has a lock.

    Raises:
        SettingsError: the lock cannot be read.
    """
    try:
        with (directory / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise SettingsError(f"{directory / 'lock'}: {error.strerror}") from error
    return False


def _added(tokens_file: Path, tokens: QueueTokens) -> list[dict[str, object]]:
    """Return the entries of a tokens file that are of other tokens than these."""
    if not tokens_file.exists():
        return []
    try:
        read_grants(tokens_file)
    except SettingsError as error:
        raise SettingsError(
            f"{error.message}; mend the file, or remove it: without it, only the queue's own "
            "tokens are written"
        ) from error
    rows: list[dict[str, object]] = _read_json(tokens_file)
    return [row for row in rows if row["token"] not in _roles(tokens).values()]


def _roles(tokens: QueueTokens) -> dict[str, str]:
    return {"produce": tokens.produce, "consume": tokens.consume, "admin": tokens.admin}


def _tokens(roles: Mapping[str, object]) -> QueueTokens:
    return QueueTokens(str(roles["produce"]), str(roles["consume"]), str(roles["admin"]))


def _read_json(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            return json.loads(stream.read(MAX_STATE_BYTES))
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{file}: got no JSON, expected what partq wrote there") from error
