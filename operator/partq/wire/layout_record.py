"""The layout record of a queue as JSON: tables of slots, lineages, retired partitions."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.rescale import RescalePlan
from partq.core.slot_table import SlotChange, SlotRanges, SlotTable
from partq.errors import InternalError, SettingsError
from partq.excerpts import excerpt

T = TypeVar("T")
RangesForm = dict[str, list[tuple[int, int]]]
"""Partitions, each with ranges of slots: `{"1.0": [[0, 2731]]}`."""
LineageForm = dict[str, RangesForm]
TimesForm = dict[str, int]


class ChangeForm(msgspec.Struct):
    """The field `next`: a change that is being prepared."""

    table: RangesForm
    lineage: LineageForm


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
    try:
        return RescalePlan(
            revision=revision,
            table=SlotTable(_slots(_read("table", fields["table"], RangesForm) or {})),
            generation=_read("generation", fields["generation"], int) or 1,
            last_generation=_read("last_generation", fields["last_generation"], int) or 1,
            next=_change(_read("next", fields["next"], ChangeForm)),
            lineage=_givers(_read("lineage", fields["lineage"], LineageForm) or {}),
            retired=_times(_read("retired", fields["retired"], TimesForm) or {}),
        )
    except (SettingsError, ValueError) as error:
        text = b" ".join(value for value in fields.values() if value)
        raise _damaged("table, next, lineage or retired", error, text) from error


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _read(field: str, text: bytes | None, form: type[T]) -> T | None:
    """Return what a field says; None: it is not there."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.DecodeError as error:
        raise _damaged(field, error, text) from error


def _damaged(field: str, error: Exception, text: bytes) -> InternalError:
    return InternalError(
        f"store: the field {field} of the layout is damaged: {error}; got {excerpt(text)!r}"
    )


def _ranges(slots: Mapping[PartitionId, SlotRanges]) -> dict[str, list[list[int]]]:
    return {
        str(partition): [[each.start, each.stop] for each in ranges]
        for partition, ranges in sorted(slots.items())
    }


def _slots(found: RangesForm) -> dict[PartitionId, SlotRanges]:
    return {PartitionId.parse(name): tuple(map(_range, pairs)) for name, pairs in found.items()}


def _range(pair: tuple[int, int]) -> range:
    start, stop = pair
    if not 0 <= start < stop <= SLOT_COUNT:
        raise ValueError(f"got the slots {start} to {stop}, expected some of {SLOT_COUNT}")
    return range(start, stop)


def _lineage(
    lineage: Mapping[PartitionId, Mapping[PartitionId, SlotRanges]],
) -> dict[str, dict[str, list[list[int]]]]:
    return {str(successor): _ranges(givers) for successor, givers in sorted(lineage.items())}


def _givers(found: LineageForm) -> dict[PartitionId, dict[PartitionId, SlotRanges]]:
    return {PartitionId.parse(name): _slots(givers) for name, givers in found.items()}


def _change(found: ChangeForm | None) -> SlotChange | None:
    if found is None:
        return None
    return SlotChange(SlotTable(_slots(found.table)), _givers(found.lineage))


def _times(found: TimesForm) -> dict[PartitionId, int]:
    return {PartitionId.parse(name): at_ms for name, at_ms in found.items()}
