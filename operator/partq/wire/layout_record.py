"""The layout record of a queue as JSON: tables of slots, lineages, retired partitions."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from partq.core.layout import Layout, Lineage, RescaleRecord
from partq.core.model import SLOT_COUNT, PartitionId
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
    must_commit: bool = False


FIELDS = (
    *("generations", "generation", "last_generation", "table", "next", "lineage", "retired"),
    *("counts", "changes"),
)
"""What `encode_layout` writes, beside the revision."""
CHANGED = "changed by a later version"
"""The field `generations` of a queue whose partition count was changed. Versions that do not know
such changes expect counts there: their operators and brokers refuse it as damaged. If the field
were not there, such an operator would take the queue for a new one, and write it again."""


def encode_layout(layout: Layout) -> dict[str, str]:
    """Return the fields of a record; an empty one is to be removed.

    From the first change that is committed `generations` is `CHANGED`: the table says all.
    """
    fields = {
        "generation": str(layout.generation),
        "last_generation": str(layout.last_generation),
        "table": _text(ranges_form(layout.table.slots)),
        "next": "",
        "lineage": _text(lineage_form(layout.lineage)) if layout.lineage else "",
        "retired": "",
        "counts": _text(layout.counts) if layout.counts else "",
        "changes": _text(layout.changes) if layout.changes else "",
    }
    if layout.next is not None:
        fields["next"] = _text(
            {
                "table": ranges_form(layout.next.table.slots),
                "lineage": lineage_form(layout.next.lineage),
                **({"must_commit": True} if layout.must_commit else {}),
            }
        )
    if layout.retired:
        fields["retired"] = _text(times_form(layout.retired))
    if layout.generation > 1:
        fields["generations"] = CHANGED
    return fields


def decode_layout(revision: int, fields: Mapping[str, bytes | None]) -> Layout:
    """Read what `encode_layout` wrote.

    Raises:
        InternalError: it did not write that.
    """
    try:
        prepared = _read("next", fields["next"], ChangeForm)
        return Layout(
            revision=revision,
            table=SlotTable(ranges_of(_read("table", fields["table"], RangesForm) or {})),
            generation=_read("generation", fields["generation"], int) or 1,
            last_generation=_read("last_generation", fields["last_generation"], int) or 1,
            next=_change(prepared),
            must_commit=prepared is not None and prepared.must_commit,
            lineage=_givers(_read("lineage", fields["lineage"], LineageForm) or {}),
            retired=_times(_read("retired", fields["retired"], TimesForm) or {}),
            counts=_read("counts", fields["counts"], dict[int, int]) or {},
            changes=_read("changes", fields["changes"], tuple[RescaleRecord, ...]) or (),
        )
    except (SettingsError, ValueError) as error:
        text = b" ".join(value for value in fields.values() if value)
        raise _damaged("table, next, lineage or retired", error, text) from error


def layout_of(
    generation: int,
    table: RangesForm,
    lineage: LineageForm,
    retired: TimesForm,
    counts: Mapping[int, int],
) -> Layout:
    """Return the layout that a broker tells its clients.

    Raises:
        SettingsError, ValueError: it is not one.
    """
    return Layout(
        table=SlotTable(ranges_of(table)),
        generation=generation,
        last_generation=generation,
        lineage=_givers(lineage),
        retired=_times(retired),
        counts=counts,
    )


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


def ranges_form(slots: Mapping[PartitionId, SlotRanges]) -> RangesForm:
    """Return partitions with their slots as JSON has them."""
    return {
        str(partition): [(each.start, each.stop) for each in ranges]
        for partition, ranges in sorted(slots.items())
    }


def ranges_of(found: RangesForm) -> dict[PartitionId, SlotRanges]:
    """Read partitions with their slots.

    Raises:
        ValueError: a name is no partition's, or a range has no slots.
    """
    return {PartitionId.parse(name): tuple(map(_range, pairs)) for name, pairs in found.items()}


def _range(pair: tuple[int, int]) -> range:
    start, stop = pair
    if not 0 <= start < stop <= SLOT_COUNT:
        raise ValueError(f"got the slots {start} to {stop}, expected some of {SLOT_COUNT}")
    return range(start, stop)


def lineage_form(lineage: Lineage) -> LineageForm:
    """Return partitions with their predecessors as JSON has them."""
    return {str(successor): ranges_form(givers) for successor, givers in sorted(lineage.items())}


def times_form(times: Mapping[PartitionId, int]) -> TimesForm:
    """Return partitions with times as JSON has them."""
    return {str(partition): at_ms for partition, at_ms in sorted(times.items())}


def _givers(found: LineageForm) -> dict[PartitionId, dict[PartitionId, SlotRanges]]:
    return {PartitionId.parse(name): ranges_of(givers) for name, givers in found.items()}


def _change(found: ChangeForm | None) -> SlotChange | None:
    if found is None:
        return None
    return SlotChange(SlotTable(ranges_of(found.table)), _givers(found.lineage))


def _times(found: TimesForm) -> dict[PartitionId, int]:
    return {PartitionId.parse(name): at_ms for name, at_ms in found.items()}
