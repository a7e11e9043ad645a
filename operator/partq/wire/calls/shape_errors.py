"""Says what does not fit in JSON, a query or a frame: the place, what was got, and expected."""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from partq.excerpts import excerpt

UNKNOWN: Final = object()
"""Stands for a value that was not decoded, such as one that is too large to do it twice."""

_PLACE = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\[(\.\.\.|\d+)\]|\.([^.\[]+)")
_WORDS = {
    "array": "an array",
    "bool": "true or false",
    "bytes": "bytes",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}
_KINDS = {dict: "object", list: "array", type(None): "null"}
_UNITS = {"array": "entries", "bytes": "bytes", "object": "entries", "str": "characters"}
_IS_WRONG: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.lt,
    "<=": operator.gt,
    ">": operator.le,
    "<": operator.ge,
}
_Node = inspect.Type | None
"""What a place can hold; None: not known."""
_BOUNDS = {">=": "{} or more", "<=": "at most {}", ">": "more than {}", "<": "less than {}"}


def describe(error: msgspec.ValidationError, value: object = UNKNOWN, kind: object = None) -> str:
    """Return what is wrong with a value, in the form of every other error.

    Args:
        error: as msgspec raised it.
        value: what was decoded, if it is known; names what was got.
        kind: what it was decoded to; names the fields and the values that it can have.
    """
    found = _PLACE.fullmatch(str(error))
    what, path = (found[1], found[2] or "") if found else (str(error), "")
    node = inspect.type_info(kind) if kind is not None else None
    steps = _STEP.findall(path)
    places = _places(steps, value)
    node = _node(steps, node)
    for form, tell in _FORMS:
        if match := re.fullmatch(form, what, re.DOTALL):
            return tell(match, places, node)
    return _at(places[0][0], what)


def _at(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def _places(steps: list[tuple[str, str]], value: object) -> list[tuple[str, object]]:
    """Return the name and the value of all that a path may mean: it does not name keys of a map."""
    places: list[tuple[str, object]] = [("", value)]
    for index, field in steps:
        places = [found for place in places for found in _below(*place, index, field)]
    return places


def _below(name: str, value: object, index: str, field: str) -> Iterator[tuple[str, object]]:
    if field:
        known = value.get(field, UNKNOWN) if isinstance(value, dict) else UNKNOWN
        yield (f"{name}.{field}" if name else field), known
    elif index == "..." and isinstance(value, dict) and value:
        for key, each in value.items():
            yield f"{name}[{excerpt(key)}]", each
    else:
        each = UNKNOWN
        if isinstance(value, list) and index.isdigit() and int(index) < len(value):
            each = value[int(index)]
        yield f"{name}[{index}]", each


def place_of_half(value: object) -> str | None:
    """Return the path of the first text with half of a character, which UTF-8 cannot hold.

    Empty: the value is such a text itself; None: no value is. A name of a map with one has the
    path of the map.

    Raises:
        RecursionError: it is nested too deep.
    """
    if isinstance(value, str):
        return "" if _has_half(value) else None
    if isinstance(value, dict):
        if any(map(_has_half, value)):
            return ""
        parts = [(excerpt(name), each) for name, each in value.items()]
    elif isinstance(value, list):
        parts = [(f"[{index}]", each) for index, each in enumerate(value)]
    else:
        return None
    for name, each in parts:
        if (below := place_of_half(each)) is not None:
            return f"{name}{below}" if below.startswith("[") else f"{name}.{below}".rstrip(".")
    return None


def _has_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _node(steps: list[tuple[str, str]], node: _Node) -> _Node:
    """Return the type at a path; None: it is not known."""
    for _, field in steps:
        node = _strip(node)
        if isinstance(node, inspect.StructType):
            node = next((each.type for each in node.fields if each.encode_name == field), None)
        elif isinstance(node, inspect.ListType):
            node = node.item_type
        elif isinstance(node, inspect.DictType):
            node = node.value_type
        else:
            return None
    return node


def _note(node: _Node) -> str:
    """Return the description of a type; empty: it has none."""
    while isinstance(node, inspect.Metadata | inspect.UnionType):
        if isinstance(node, inspect.Metadata):
            if note := (node.extra_json_schema or {}).get("description"):
                return str(note)
            node = node.type
        else:
            node = next(each for each in node.types if not isinstance(each, inspect.NoneType))
    return ""


def _strip(node: _Node) -> _Node:
    """Return what a type means beside null and notes."""
    while isinstance(node, inspect.Metadata | inspect.UnionType):
        if isinstance(node, inspect.Metadata):
            node = node.type
        else:
            node = next(each for each in node.types if not isinstance(each, inspect.NoneType))
    return node


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _first(places: list[tuple[str, object]], is_wrong: Callable[[Any], bool]) -> tuple[str, object]:
    return next((place for place in places if place[1] is not UNKNOWN and is_wrong(place[1])), (
        places[0][0], UNKNOWN
    ))  # fmt: skip


def _describe_type(match: re.Match[str], places: list[tuple[str, object]], _: _Node) -> str:
    wanted, got = match.groups()
    name, value = _first(places, lambda value: _kind(value) == got)
    told = _WORDS.get(got, got)
    if got == "float" and "int" in wanted:
        told = "a number that is not whole"
    elif isinstance(value, str):
        told = f"{told} {excerpt(value)!r}"
    expected = " or ".join(_WORDS.get(each, each) for each in wanted.split(" | "))
    return _at(name, f"got {told}, expected {expected}")


def _describe_pattern(match: re.Match[str], places: list[tuple[str, object]], node: _Node) -> str:
    name, value = places[0]
    got = f"{excerpt(value)!r}" if isinstance(value, str) else "another text"
    note = _note(node)
    expected = f"{note[:1].lower()}{note[1:]}" or f"text that matches {match[1]}"
    return _at(name, f"got {got}, expected {expected}")


def _describe_range(match: re.Match[str], places: list[tuple[str, object]], _: _Node) -> str:
    sign, bound = match.groups()
    limit = float(bound) if "." in bound else int(bound)

    def is_wrong(value: object) -> bool:
        if not isinstance(value, str | int | float):
            return False
        try:
            return _IS_WRONG[sign](int(value), limit)
        except (TypeError, ValueError):
            return False

    name, value = _first(places, is_wrong)
    got = "a number out of range" if value is UNKNOWN else excerpt(value)
    return _at(name, f"got {got}, expected {_BOUNDS[sign].format(bound)}")


def _describe_length(match: re.Match[str], places: list[tuple[str, object]], _: _Node) -> str:
    kind, sign, bound = match.groups()
    name, value = _first(
        places, lambda value: _kind(value) == kind and _IS_WRONG[sign](len(value), int(bound))
    )
    size = "another number of" if value is UNKNOWN else len(value)  # type: ignore[arg-type]  # judged above
    return _at(name, f"got {size} {_UNITS[kind]}, expected {_BOUNDS[sign].format(bound)}")


def _describe_count(match: re.Match[str], places: list[tuple[str, object]], _: _Node) -> str:
    least, wanted, got = match.groups()
    return _at(places[0][0], f"got {got} elements, expected {wanted}{' or more' if least else ''}")


def _describe_missing(match: re.Match[str], places: list[tuple[str, object]], _: _Node) -> str:
    name = f"{places[0][0]}.{match[1]}" if places[0][0] else match[1]
    return f"{name}: got nothing, expected the field; send it"


def _describe_unknown(match: re.Match[str], places: list[tuple[str, object]], node: _Node) -> str:
    known = ", ".join(each.encode_name for each in getattr(_strip(node), "fields", ()))
    expected = f", expected {known}" if known else ""
    return _at(places[0][0], f"got the unknown field {excerpt(match[1])}{expected}; leave it out")


def _describe_choice(match: re.Match[str], places: list[tuple[str, object]], node: _Node) -> str:
    values = [repr(value) for value in getattr(_strip(node), "values", ())]
    expected = " or ".join(values) or "one that the protocol knows"
    return _at(places[0][0], f"got {excerpt(match[1])}, expected {expected}")


def _describe_too_large(_: re.Match[str], places: list[tuple[str, object]], __: _Node) -> str:
    return _at(places[0][0], "got a number that is too large to read, expected one of 64 bits")


_FORMS: tuple[
    tuple[str, Callable[[re.Match[str], list[tuple[str, object]], _Node], str]], ...
] = (
    (r"Expected `array` of (at least )?length (\d+), got (\d+)", _describe_count),
    (r"Expected `([^`]*)`, got `([^`]*)`", _describe_type),
    (r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)", _describe_range),
    (r"Expected `str` matching regex (.*)", _describe_pattern),
    (r"Expected `(\w+)` of length (>=|<=) (\d+)", _describe_length),
    (r"Object missing required field `(.*)`", _describe_missing),
    (r"Object contains unknown field `(.*)`", _describe_unknown),
    (r"Invalid (?:enum )?value (.*)", _describe_choice),
    (r"(?:Integer value|Number) out of range", _describe_too_large),
)  # fmt: skip
