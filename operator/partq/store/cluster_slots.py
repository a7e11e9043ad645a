"""The hash slots of a Redis Cluster: which one a key has, and which node serves it. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis.crc import key_slot

SLOT_COUNT = 16_384

Owners = list[str | None]
"""By slot: host and port of the node that serves it; None: nobody does."""

_KEYLESS = {"CONFIG", "INFO", "KEYS", "PING", "SCAN", "SCRIPT", "TIME"}


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One node's view of the cluster: its answer to CLUSTER NODES."""

    text: str
    host: str
    """Where it was asked: a node that does not know its own address leaves it out."""


@dataclass(frozen=True, slots=True, order=True)
class _SlotClaim:
    config_epoch: int
    node_id: str
    address: str
    ranges: tuple[tuple[int, int], ...]


def slot_of(key: str) -> int:
    """Return the slot of a key: of the part in braces, if there is one."""
    return key_slot(key.encode())


def key_of(command: Sequence[str | bytes | int]) -> str | None:
    """Return the first key of a plain command; None: it has none."""
    name = str(command[0]).upper()
    if name in _KEYLESS:
        return None
    at = command.index("STREAMS") + 1 if name == "XREAD" else 1
    key = command[at]
    return key.decode() if isinstance(key, bytes) else str(key)


def merge(views: Iterable[ClusterView], *, by_name: bool) -> Owners:
    """Return who serves each slot, by the word of several nodes.

    Nodes that were cut off speak of the past. Each failover and each move of a slot has a higher
    epoch than the one before, so for every slot the claim with the highest one holds, as among the
    nodes themselves. `by_name`: nodes are reached by the host names that they announce, if they do.
    """
    claims = {claim for view in views for claim in _claims(view, by_name=by_name)}
    owners: Owners = [None] * SLOT_COUNT
    for claim in sorted(claims):
        for first, last in claim.ranges:
            owners[first : last + 1] = [claim.address] * (last + 1 - first)
    return owners


def _claims(view: ClusterView, *, by_name: bool) -> Iterable[_SlotClaim]:
    """Read lines such as `ID 10.0.0.1:6379@16379,name master - 0 0 3 connected 0-5460 [7->-ID]`."""
    for line in view.text.splitlines():
        fields = line.split()
        flags = fields[2].split(",") if len(fields) > 8 else []
        if "master" not in flags or "noaddr" in flags:
            continue
        endpoint, *names = fields[1].split(",")
        host, _, port = endpoint.partition("@")[0].rpartition(":")
        if by_name and names and names[0]:
            host = names[0]
        if ":" in host:
            host = f"[{host}]"
        ranges = tuple(
            (int(first), int(last or first))
            for first, _, last in (
                field.partition("-") for field in fields[8:] if not field.startswith("[")
            )
        )
        yield _SlotClaim(int(fields[6]), fields[0], f"{host or view.host}:{port}", ranges)
