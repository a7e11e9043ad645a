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
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import IO, Any, Self

from partq.broker.api.tokens import read_grants
from partq.errors import SettingsError

MAX_STATE_BYTES = 1024 * 1024
MAX_PID_CHARS = 20
MAX_PID = 2**31 - 1
LOOKS_TIMEOUT_S = 5.0
"""How long a start waits for commands that check whether the directory is held."""
LOOK_POLL_S = 0.01
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
    is_created: bool = False
    """Whether it is a dead-letter queue that `deadLetter.create` asked for: no file declares it."""


class DataDir:
    """One directory; held by at most one runtime at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: IO[str] | None = None

    @property
    def redis(self) -> Path:
        """Where Redis keeps its data."""
        return self.path / "redis"

    @property
    def lock_file(self) -> Path:
        """The file that a runtime locks while it runs; it names the process."""
        return self.path / "lock"

    @property
    def state_file(self) -> Path:
        """Where the queues of the runtime that runs are; it is there once they are served."""
        return self.path / "dev.json"

    def log(self, process: str) -> Path:
        """Return the log file of a process."""
        return self.path / "logs" / f"{process}.log"

    def is_held(self) -> bool:
        """Say whether a runtime holds the directory.

        Raises:
            SettingsError: the lock cannot be read.
        """
        try:
            with self.lock_file.open("rb") as lock:
                return not _try_lock(lock, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise SettingsError(f"{self.lock_file}: {error.strerror}") from error

    def read_pid(self) -> int | None:
        """Return the process that the lock names; it may have ended. None: it names none."""
        try:
            with self.lock_file.open(encoding="ascii", errors="replace") as opened:
                text = opened.read(MAX_PID_CHARS).strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SettingsError(f"{self.lock_file}: {error.strerror}") from error
        return int(text) if text.isdecimal() and 1 < int(text) <= MAX_PID else None

    def refuse_if_held(self) -> None:
        """Check that no other runtime holds the directory, and write nothing.

        Raises:
            SettingsError: one does, or the lock cannot be read.
        """
        if self.is_held():
            raise self._held()

    def _held(self) -> SettingsError:
        return SettingsError(
            f"data directory {self.path}: process {self.read_pid() or '?'} is using it; "
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
            lock = self.lock_file.open("a+", encoding="ascii")
        except OSError as error:
            raise SettingsError(f"data directory {self.path}: {error.strerror}") from error
        try:
            self._acquire(lock)
        except BaseException:
            lock.close()
            raise
        self.state_file.unlink(missing_ok=True)  # of a runtime that was killed
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def _acquire(self, lock: IO[str]) -> None:
        """Lock the file. Commands that look at it share the lock for a moment each."""
        until = time.monotonic() + LOOKS_TIMEOUT_S
        while not _try_lock(lock, fcntl.LOCK_EX):
            if not _try_lock(lock, fcntl.LOCK_SH):
                raise self._held()
            if time.monotonic() > until:
                raise SettingsError(
                    f"data directory {self.path}: other commands have looked at it for "
                    f"{LOOKS_TIMEOUT_S:g} s, expected a moment each; look for one that hangs, end "
                    "it, and start again"
                )
            # The shared lock goes first, or two starts would wait for each other.
            fcntl.flock(lock, fcntl.LOCK_UN)
            sleep(LOOK_POLL_S)

    def let_go(self) -> None:
        """Give the directory back; repeats are harmless."""
        if self._lock is not None:
            self.state_file.unlink(missing_ok=True)
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
            "queues": [
                {
                    "namespace": queue.namespace,
                    "name": queue.name,
                    "url": queue.url,
                    "groups": list(queue.groups),
                    "tokens": _roles(queue.tokens),
                    "is_created": queue.is_created,
                }
                for queue in queues
            ],
        }
        write_private(self.state_file, json.dumps(state, indent=2) + "\n")


def read_state(directory: Path) -> list[QueueState]:
    """Return the queues of the runtime that runs on a data directory; none when none runs.

    Raises:
        SettingsError: its state file is damaged or not readable.
    """
    data_dir = DataDir(directory)
    file = data_dir.state_file
    try:
        is_there = file.exists()
    except OSError as error:
        raise SettingsError(
            f"{file}: {error.strerror}; expected a data directory of `partq dev up` that this user "
            "may read: name it with --data-dir, or give --url, --queue and --token"
        ) from error
    if not is_there or not data_dir.is_held():
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
                is_created=bool(queue.get("is_created", False)),  # an older runtime does not say
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


def _try_lock(lock: IO[Any], kind: int) -> bool:
    """Lock an open file if nobody keeps us from it, and say whether that is so."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
