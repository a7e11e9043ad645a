"""Bearer tokens and their roles: who may call, and for what."""

import hmac
import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from partq.errors import ForbiddenError, SettingsError, UnauthorizedError
from partq.excerpts import excerpt, some_of

RELOAD_GAP_S = 5.0
"""How often the file is looked at: a token that is rotated counts after this."""
MAX_TOKENS = 1000
"""Of a tokens file; the operator writes no more."""
MIN_TOKEN_CHARS = 16

_log = logging.getLogger(__name__)


class Role(StrEnum):
    """Rights of a token."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    PEER = "peer"
    """A broker of another queue; its token is never in a file."""


FILE_ROLES = (Role.PRODUCE, Role.CONSUME, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """One line of the tokens file."""

    token: str
    queue: str
    role: Role
    groups: frozenset[str] | None
    """For consumers: the groups; None: every group of the queue."""


class Tokens:
    """The tokens of a file that may change while the broker runs.

    Several may be good for the same at once, so one can be replaced without a gap: add the new
    one, give it out, remove the old one.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float], reload_gap_s: float = RELOAD_GAP_S
    ) -> None:
        self.reload_gap_s = reload_gap_s
        self._path = path
        self._clock = clock
        self._is_readable = True
        self._looked_at = clock()
        self._changed_ns = path.stat().st_mtime_ns
        self._grants = read_grants(path)
        self.peer_token: Callable[[], str] = str
        """Returns the token of brokers of other queues; empty: not known yet."""

    def check(
        self,
        authorization: str | None,
        *,
        queue: str,
        roles: Collection[Role],
        group: str | None = None,
        is_by_name: bool = False,
    ) -> TokenGrant:
        """Return what the token grants, if that is enough.

        `is_by_name`: a token of a consumer must name the group; one for every group is not enough.

        Raises:
            UnauthorizedError: no token, or an unknown one.
            ForbiddenError: a token for another queue, role or group.
        """
        self._reload()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise UnauthorizedError(
                "no token: send the header 'Authorization: Bearer TOKEN'; in Python, give the "
                "client token="
            )
        given = token.strip().encode(errors="surrogateescape")  # bytes that are not text, too
        # Every token is compared, in constant time: how long it takes tells nothing.
        peer = self.peer_token()
        grants = [*self._grants, *([TokenGrant(peer, queue, Role.PEER, None)] if peer else [])]
        found = [g for g in grants if hmac.compare_digest(g.token.encode(), given)]
        if not found:
            raise UnauthorizedError("unknown token: ask for one that this queue's broker takes")
        for grant in found:
            is_for_all = grant.groups is None and not is_by_name
            is_for_group = group is None or is_for_all or group in (grant.groups or ())
            if (
                grant.queue == queue
                and grant.role in roles
                and (grant.role is Role.ADMIN or is_for_group)
            ):
                return grant
        raise ForbiddenError(
            f"the token is for {_purpose(found, queue, roles)}; this call needs "
            f"queue {queue}, role {' or '.join(sorted(roles))}"
            + (f", group {excerpt(group)}" if group is not None else "")
            + (" by name: a token for every group does not move cursors" if is_by_name else "")
        )

    def _reload(self) -> None:
        now = self._clock()
        if now - self._looked_at < self.reload_gap_s:
            return
        self._looked_at = now
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns != self._changed_ns:
                self._grants = read_grants(self._path)
                self._changed_ns = changed_ns
        except (OSError, SettingsError) as error:
            # Half-written or gone for a moment, or for good: the tokens read last continue.
            if self._is_readable:
                _log.warning("the tokens read last stay in force: %s", error)
            self._is_readable = False
            return
        self._is_readable = True


def _purpose(found: Sequence[TokenGrant], queue: str, roles: Collection[Role]) -> str:
    """Say what a token is for, without the token: what comes next to the call, if it is several."""
    grant = max(found, key=lambda each: (each.queue == queue, each.role in roles))
    text = f"queue {grant.queue}, role {grant.role}"
    if grant.role is not Role.CONSUME:
        return text
    if grant.groups is None:
        return f"{text}, every group"
    return f"{text}, groups {some_of(grant.groups)}"


def read_grants(path: Path) -> list[TokenGrant]:
    """Read a tokens file.

    Raises:
        SettingsError: not a JSON list of {"token", "queue", "role", "groups"?}.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"tokens file {path}: {error}") from error
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_TOKENS:
        raise SettingsError(f"tokens file {path}: expected a list of 1 to {MAX_TOKENS} tokens")
    return [_read_grant(path, number, row) for number, row in enumerate(rows)]


def _read_grant(path: Path, number: int, row: object) -> TokenGrant:
    where = f"tokens file {path}, entry {number}"
    if not isinstance(row, dict) or not {"token", "queue", "role"} <= row.keys():
        raise SettingsError(f"{where}: expected an object with token, queue and role")
    if row["role"] not in FILE_ROLES:
        raise SettingsError(
            f"{where}: role {excerpt(row['role'])!r}; expected one of {[*FILE_ROLES]}"
        )
    if not isinstance(row["token"], str) or len(row["token"]) < MIN_TOKEN_CHARS:
        raise SettingsError(
            f"{where}: got a token that is too short, expected at least {MIN_TOKEN_CHARS} "
            "characters"
        )
    groups = row.get("groups")
    if groups is not None and not (
        isinstance(groups, list) and all(isinstance(group, str) for group in groups)
    ):
        raise SettingsError(f"{where}: groups {excerpt(groups)}; expected a list of names")
    return TokenGrant(
        row["token"],
        str(row["queue"]),
        Role(row["role"]),
        frozenset(groups) if groups is not None else None,
    )
