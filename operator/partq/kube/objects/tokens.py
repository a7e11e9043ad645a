"""The tokens of a queue's Secret: one per role, and one for each consumer group."""

import json
import secrets
from collections.abc import Collection, Mapping

from partq.broker.api.tokens import MAX_TOKENS
from partq.errors import SettingsError
from partq.excerpts import counted
from partq.kube import names


def draw() -> str:
    """Return a new token, of hexadecimal digits: none begins with a `-`, like an option does."""
    return secrets.token_hex(24)


def first_entries(queue: str) -> dict[str, str]:
    """Return the entries of a new Secret: a token per role, and what brokers read."""
    roles = {role: draw() for role in ("produce", "consume", "admin")}
    grants = [{"token": token, "queue": queue, "role": role} for role, token in roles.items()]
    return {**roles, names.TOKENS_ENTRY: json.dumps(grants, indent=2)}


def entry_of(group: str) -> str:
    """Return the entry with the token for one consumer group."""
    return f"consume-{group}"


def with_groups(entries: Mapping[str, str], queue: str, groups: Collection[str]) -> dict[str, str]:
    """Return the entries to add, so that each group has a token; empty: each has one.

    A token is drawn once. Where its entry exists, nothing is changed: an administrator may have
    rotated it, or withdrawn it from `tokens.json`. The tokens of groups that are gone stay.

    Raises:
        SettingsError: `tokens.json` is not a list, or has no room for more.
    """
    missing = sorted(group for group in groups if entry_of(group) not in entries)
    if not missing:
        return {}
    grants = _grants(entries.get(names.TOKENS_ENTRY, ""))
    if len(grants) + len(missing) > MAX_TOKENS:
        raise SettingsError(
            f"{names.TOKENS_ENTRY}: got {counted(len(grants), 'token')}, expected at most "
            f"{MAX_TOKENS - len(missing)}, as {counted(len(missing), 'group needs', 'groups need')}"
            " one; remove those of groups that are gone"
        )
    made = {entry_of(group): draw() for group in missing}
    grants += [
        {"token": made[entry_of(group)], "queue": queue, "role": "consume", "groups": [group]}
        for group in missing
    ]
    return {**made, names.TOKENS_ENTRY: json.dumps(grants, indent=2)}


def admin_token(tokens_json: str, queue: str) -> str:
    """Return the first token that lets the operator call the brokers.

    Raises:
        SettingsError: the list has no such token.
    """
    try:
        grants = _grants(tokens_json)
    except SettingsError:
        grants = []
    for grant in grants:
        if (
            isinstance(grant, dict)
            and (grant.get("queue"), grant.get("role")) == (queue, "admin")
            and isinstance(grant.get("token"), str)
        ):
            return str(grant["token"])
    raise SettingsError(
        f"{names.TOKENS_ENTRY}: got no token of the role admin for the queue {queue}, expected one "
        'in a JSON list of {"token", "queue", "role"}'
    )


def _grants(tokens_json: str) -> list[object]:
    try:
        grants = json.loads(tokens_json)
    except ValueError:
        grants = None
    if not isinstance(grants, list):
        raise SettingsError(
            f"{names.TOKENS_ENTRY}: got no list, expected a JSON list of "
            '{"token", "queue", "role", "groups"?}'
        )
    return grants
