"""Names that stand in the path of a call: which can, and how they are written there.

Clients and proxies remove `.` and `..` from a path before they send it: the call would be another.
"""

from typing import Final
from urllib.parse import quote

from partq.errors import BadRequestError
from partq.excerpts import excerpt

EXPECTED: Final = "printable characters, other than . and .."


def is_path_name(name: str) -> bool:
    """Tell whether a name arrives as it is, wherever it stands in a path."""
    return bool(name) and name.isprintable() and name not in (".", "..")


def check_path_name(name: str, what: str) -> None:
    """See that a name can stand in a path; `what` it names, for the error.

    Raises:
        BadRequestError: it cannot.
    """
    if not is_path_name(name):
        raise BadRequestError(f"{what} {excerpt(name)!r}; expected {EXPECTED}")


def quoted(name: str, what: str) -> str:
    """Return a name as one part of a path; `what` it names, for the error.

    Raises:
        BadRequestError: it cannot stand there.
    """
    check_path_name(name, what)
    return quote(name, safe="")
