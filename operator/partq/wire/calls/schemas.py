"""JSON Schema of bodies and answers, from the classes that read and write them."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

Schema = dict[str, Any]
"""A JSON Schema, or another part of the document: what is in it goes by the standard."""
REFERENCE = "#/components/schemas/{name}"
_MARK: Final = "x-undescribed"
UNDESCRIBED: Final = msgspec.Meta(extra_json_schema={_MARK: True})
"""Marks a field whose inside may change with the version, so that no caller relies on it."""

_SENT: Final = "x-sent"
SENT: Final = msgspec.Meta(extra_json_schema={_SENT: True})
"""Marks a field of answers that is always sent; it has a default for those of earlier brokers."""


def schemas(kinds: Sequence[object]) -> tuple[list[Schema], Schema]:
    """Return the schema of each kind, and the components that they refer to by name."""
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    shown = {name: _without_marked(component) for name, component in components.items()}
    needed = _referred(list(found))
    left = list(needed)
    while left:
        more = _referred(shown[left.pop()]) - needed
        needed |= more
        left += more
    return list(found), {name: shown[name] for name in shown if name in needed}


def fields(kind: type[msgspec.Struct]) -> list[tuple[str, Schema, bool]]:
    """Return of each field its name on the wire, its schema, and whether it is required."""
    rows = msgspec.structs.fields(kind)
    found, _ = msgspec.json.schema_components([row.type for row in rows], ref_template=REFERENCE)
    return [
        (row.encode_name, schema, row.required) for row, schema in zip(rows, found, strict=True)
    ]


def names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields on the wire."""
    return kind.__struct_encode_fields__


def _part_without_marked(part: object) -> object:
    if isinstance(part, list):
        return [_part_without_marked(each) for each in part]
    return _without_marked(part) if isinstance(part, dict) else part


def _without_marked(schema: Schema) -> Schema:
    """Return a schema as it is shown: of what is marked UNDESCRIBED no more than the type."""
    if _MARK not in schema:
        shown: Schema = {
            name: _part_without_marked(each) for name, each in schema.items() if name != _SENT
        }
        sent = {n for n, each in schema.get("properties", {}).items() if _SENT in each}
        if sent:
            required = sent.union(shown["required"])
            shown["required"] = [name for name in shown["properties"] if name in required]
            for name in sent:
                shown["properties"][name].pop("default", None)
        return shown
    inside: Schema = {"items": {"type": "object"}} if schema["type"] == "array" else {}
    return {"type": schema["type"], **inside}


def _referred(schema: object) -> set[str]:
    return set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema)))
