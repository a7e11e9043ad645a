"""What a URL of Redis may ask for beside its hosts."""

import re
from urllib.parse import parse_qsl, urlsplit

from partq.errors import SettingsError

PARAMETERS = {
    "db": r"[0-9]{1,5}",
    "ssl_cert_reqs": r"none|optional|required",
    "ssl_check_hostname": r"true|false",
}
"""The parameters behind the `?`, each with what it takes. The client library knows many more: files
that are opened, and arguments of its own functions."""


def check(url: str) -> None:
    """Refuse a URL with parameters that are not known; its text is not repeated.

    Raises:
        SettingsError: a parameter is unknown, stands there twice or has a value that it does not
            take; or the path is no number of a database.
    """
    parts = urlsplit(url)
    if not re.fullmatch(r"/?|/[0-9]{1,5}/?", parts.path):
        raise SettingsError(
            "store: the URL of Redis: got a path that is not shown, expected the number of a "
            "database, such as /0"
        )
    if parts.fragment:
        raise SettingsError("store: the URL of Redis: got a part behind #, expected none")
    seen: set[str] = set()
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        expected = PARAMETERS.get(name)
        if expected is None or name in seen:
            shown = name[:40] if re.fullmatch(r"[A-Za-z_]+", name) else "one that is not shown"
            raise SettingsError(
                f"store: the URL of Redis: parameter {shown}: got an unknown one, or one twice, "
                f"expected only {', '.join(PARAMETERS)}, each once"
            )
        if not re.fullmatch(expected, value):
            raise SettingsError(
                f"store: the URL of Redis: parameter {name}: got a value that is not shown, "
                f"expected {expected.replace('|', ' or ')}"
            )
        seen.add(name)
