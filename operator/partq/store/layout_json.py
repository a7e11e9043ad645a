"""Fields of the layout record as JSON: tables of slots, lineages, retired partitions."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.rescale import RescalePlan
from partq.core.slot_table import SlotChange, SlotRanges, SlotTable
from partq.errors import InternalError, SettingsError
from partq.excerpts import excerpt

FIELDS = ("generations", "generation", "last_generation", "table", "next", "lineage", "retired")
"""What `encode_plan` writes, beside the revision."""


def encode_plan(plan: RescalePlan) -> dict[str, str]:
    """Return the fields of a record; an empty one is to be removed.

    The field `generations` is removed by the first change that is committed: a broker of a version
    that does not know such changes finds no layout from then on, and serves nothing.
    """
    fields = {
        "generation": str(plan.generation),
        "last_generation": str(plan.last_generation),
        "table": _text(_ranges(plan.table.slots)),
        "next": "",
        "lineage": _text(_lineage(plan.lineage)) if plan.lineage else "",
        "retired": "",
    }
    if plan.next is not None:
        fields["next"] = _text(
            {"table": _ranges(plan.next.table.slots), "lineage": _lineage(plan.next.lineage)}
        )
    if plan.retired:
        fields["retired"] = _text({str(each): at for each, at in sorted(plan.retired.items())})
    if plan.generation > 1:
        fields["generations"] = ""
    return fields


def decode_plan(revision: int, fields: Mapping[str, bytes | None]) -> RescalePlan:
    """Read what `encode_plan` wrote.

    Raises:
        InternalError: it did not write that.
    """
    following = _read("next", fields["next"], _change)
    return RescalePlan(
        revision=revision,
        table=_read("table", fields["table"], lambda found: SlotTable(_slots(found))),
        generation=_read("generation", fields["generation"], int),
        last_generation=_read("last_generation", fields["last_generation"], int),
        next=following,
        lineage=_read("lineage", fields["lineage"], _givers) or {},
        retired=_read("retired", fields["retired"], _times) or {},
    )


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _read(field: str, text: bytes | None, build: Callable[[Any], Any]) -> Any:
    """Return what a field says; None: it is not there."""
    if text is None:
        return None
    try:
        return build(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError, SettingsError) as error:
        raise InternalError(
            f"store: the field {field} of the layout is damaged: {error}; got {excerpt(text)!r}"
        ) from error


def _ranges(slots: Mapping[PartitionId, SlotRanges]) -> dict[str, list[list[int]]]:
    return {
        str(partition): [[each.start, each.stop] for each in ranges]
        for partition, ranges in sorted(slots.items())
    }


def _slots(found: Mapping[str, list[list[int]]]) -> dict[PartitionId, SlotRanges]:
    return {PartitionId.parse(name): tuple(map(_range, pairs)) for name, pairs in found.items()}


def _range(pair: list[int]) -> range:
    start, stop = pair
    if not 0 <= start < stop <= SLOT_COUNT:
        raise ValueError(f"got the slots {start} to {stop}, expected some of {SLOT_COUNT}")
    return range(start, stop)


def _lineage(
    lineage: Mapping[PartitionId, Mapping[PartitionId, SlotRanges]],
) -> dict[str, dict[str, list[list[int]]]]:
    return {str(successor): _ranges(givers) for successor, givers in sorted(lineage.items())}


def _givers(found: Mapping[str, Any]) -> dict[PartitionId, dict[PartitionId, SlotRanges]]:
    return {PartitionId.parse(name): _slots(givers) for name, givers in found.items()}


def _change(found: Mapping[str, Any]) -> SlotChange:
    return SlotChange(SlotTable(_slots(found["table"])), _givers(found["lineage"]))


def _times(found: Mapping[str, int]) -> dict[PartitionId, int]:
    return {PartitionId.parse(name): int(at_ms) for name, at_ms in found.items()}
