"""Which queues a consumer of several queues wants, and what its group is called in each."""

import re
from collections.abc import Callable, Iterable, Sequence

from partq.client import arguments
from partq.errors import SettingsError
from partq.excerpts import excerpt

MAX_QUEUES = 1000
MAX_PATTERN_CHARS = 1000
QUEUE_PLACE = "{queue}"


def checked_group(group: object) -> str:
    """Return the name of the group, in which `{queue}` may stand for that of the queue.

    Raises:
        SettingsError: it is something else than text, or has other braces.
    """
    arguments.check_texts({"group": group}, needed=("group",))
    name = str(group)
    if "{" in (rest := name.replace(QUEUE_PLACE, "")) or "}" in rest:
        raise SettingsError(
            f"group: got {excerpt(repr(name))}, expected a name in which {QUEUE_PLACE} alone may "
            f"stand for the name of the queue, such as '{QUEUE_PLACE}-workers'"
        )
    return name


def queue_choice(queues: Sequence[str] | None, pattern: str | None) -> Callable[[str], bool]:
    """Return whether a queue is wanted, by its name."""
    if (queues is None) == (pattern is None):
        both = "both" if queues is not None else "neither"
        raise SettingsError(f"queues, pattern: got {both}, expected one of them")
    if pattern is not None:
        given: object = pattern
        if not isinstance(given, str) or not 0 < len(pattern) <= MAX_PATTERN_CHARS:
            got = excerpt(repr(pattern))
            raise SettingsError(
                f"pattern: got {got}, expected a text of 1 to {MAX_PATTERN_CHARS} characters"
            )
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise SettingsError(
                f"pattern: got {excerpt(pattern)!r}, expected a regular expression: {error}"
            ) from error
        return lambda queue: compiled.fullmatch(queue) is not None
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise SettingsError(f"queues: got {type(queues).__name__}, expected a list of names")
    names = list(queues)
    if not 0 < len(names) <= MAX_QUEUES:
        raise SettingsError(f"queues: got {len(names)} names, expected 1 to {MAX_QUEUES}")
    for name in names:
        arguments.check_names({"queues": name}, needed=("queues",))
    return frozenset(names).__contains__
