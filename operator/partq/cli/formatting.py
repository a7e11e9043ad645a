"""How people write and read times and names on the command line."""

import re
from datetime import UTC, datetime

from partq.errors import SettingsError
from partq.excerpts import excerpt

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What ends a line or steers a terminal."""


def one_line(text: str) -> str:
    """Return a text of a message as it is, but for control characters, which are escaped."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def spell_ms(length_ms: int) -> str:
    """Return a length of time as `40 ms` or `5.0 s`."""
    return f"{length_ms} ms" if length_ms < 1_000 else f"{length_ms / 1000:.1f} s"


def spell_time(at_ms: int) -> str:
    """Return a unix time as `2026-12-01T08:00:00.000Z`."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def spell_age(age_ms: int) -> str:
    """Return for how long something has waited, as `0.4 s`, `12 s`, `3 min` or `2 h`."""
    seconds = age_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def milliseconds(text: str, option: str) -> int:
    """Return the unix time that a person has given with `option`, as ISO 8601.

    Raises:
        SettingsError: it is no such time, or has no time zone.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"{option}: got {excerpt(repr(text))}, expected a time with a time zone, such as "
            "2026-11-20T08:00:00+00:00"
        ) from error
    if at.tzinfo is None:
        raise SettingsError(
            f"{option}: got {text} without a time zone; expected one, such as "
            f"{at.isoformat()}+00:00"
        )
    return max(0, int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))


def full_name(partition: str) -> str:
    """Return a partition's name with its generation; `3` is one of the first."""
    return partition if "." in partition else f"1.{partition}"
