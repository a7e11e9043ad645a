"""What messages for people repeat of names, texts and counts: no more than helps.

A name of a megabyte is shown by its beginning, in an answer, a log line or a condition.
"""

from collections.abc import Collection
from typing import Final

MAX_CHARS: Final = 80
"""Of a name or a text, unless its caller says otherwise."""
MAX_NAMES: Final = 10


def excerpt(value: object, max_chars: int = MAX_CHARS) -> str:
    """Return a value as text; of a longer one the beginning, and `...`."""
    text = str(value)
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."


def represented(value: object, max_chars: int = MAX_CHARS) -> str:
    """Return the beginning of the `repr` of an application's object; its type if that raises."""
    try:
        return excerpt(repr(value), max_chars)
    except Exception:  # noqa: BLE001 - the application's, whatever it is
        return f"<{excerpt(type(value).__name__, max_chars)} without a repr>"


def some_of(names: Collection[str], max_names: int = MAX_NAMES) -> str:
    """Return names in their order: of many the first, and how many there are besides."""
    if not names:
        return "none"
    shown = ", ".join(excerpt(name) for name in sorted(names)[:max_names])
    more = len(names) - max_names
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, one: str, many: str = "", *, spec: str = "") -> str:
    """Return a count with its noun, as in `1 message` and `2 messages`.

    Args:
        count: how many.
        one: the words for one, such as `message is`.
        many: those for every other count; empty: `one` with an `s`.
        spec: how the count is formatted; `,`: with separators of thousands.
    """
    return f"{count:{spec}} {one if count == 1 else many or f'{one}s'}"
