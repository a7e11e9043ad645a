"""JSON Schema of bodies and answers, from the classes that read and write them."""

from collections.abc import Sequence
from typing import Any

import msgspec

REFERENCE = "#/components/schemas/{name}"


def schemas(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schema of each kind, and the components that they refer to by name."""
    found, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    return list(found), components


def fields(kind: type[msgspec.Struct]) -> list[tuple[str, dict[str, Any], bool]]:
    """Return of each field its name on the wire, its schema, and whether it is required."""
    rows = msgspec.structs.fields(kind)
    found, _ = msgspec.json.schema_components([row.type for row in rows], ref_template=REFERENCE)
    return [
        (row.encode_name, schema, row.required) for row, schema in zip(rows, found, strict=True)
    ]
