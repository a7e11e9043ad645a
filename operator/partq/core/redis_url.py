"""What a URL of Redis may say: one rule for settings, resources, Secrets and connections."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

MAX_HOSTS = 16
PARAMETERS = {
    "db": r"[0-9]{1,5}",
    "ssl_cert_reqs": r"none|optional|required",
    "ssl_check_hostname": r"true|false",
}
"""The parameters behind the `?`, each with what it takes. The client library knows many more: files
that are opened, and arguments of its functions."""
_PATH = r"(/([0-9]{1,5}/?)?)?"
_PORT = r"0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = rf"(\[[^\[\]/?#@,\s]+\]|[^\[\]/?#@,:\s]+)(:({_PORT})?)?"


def _once_each(parameters: Mapping[str, str]) -> str:
    """Return a pattern of one or more of the parameters, in any order, none of them twice."""
    kinds = []
    for name, value in parameters.items():
        rest = {other: each for other, each in parameters.items() if other != name}
        kinds.append(f"{name}=({value})" + (f"(&{_once_each(rest)})?" if rest else ""))
    return f"({'|'.join(kinds)})"


PLAIN_PATTERN = (
    rf"^rediss?://{_HOST}(,{_HOST}){{0,{MAX_HOSTS - 1}}}{_PATH}(\?{_once_each(PARAMETERS)})?$"
)
"""A URL with no user and no password, as a schema can say it; `check` also reads addresses."""
_PARTS = re.compile(r"rediss?://[^/?#\s]+(/[^?#]*)?(?:\?([^#]*))?(#.*)?", re.DOTALL)


def redis_urls(text: str) -> tuple[str, ...]:
    """Return a URL for each host of a URL with commas between its hosts."""
    scheme, _, rest = text.partition("://")
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    user, at, hosts = rest[:end].rpartition("@")
    return tuple(f"{scheme}://{user}{at}{host}{rest[end:]}" for host in hosts.split(","))


def check(text: str) -> None:
    """Refuse what is not a URL of Redis, of any node of a Redis Cluster, or of several.

    Raises:
        ValueError: what was expected, as it follows the word "expected"; the URL, which may hold a
            password, is not repeated.
    """
    urls = redis_urls(text)
    if len(urls) > MAX_HOSTS:
        raise ValueError(f"a URL with at most {MAX_HOSTS} hosts")
    parts = _PARTS.fullmatch(text)
    if parts is None or not all(map(_has_host, urls)):
        raise ValueError("a URL such as redis://127.0.0.1:6379")
    path, query, fragment = parts.groups()
    if fragment is not None:
        raise ValueError("nothing behind a #")
    if not re.fullmatch(_PATH, path or ""):
        raise ValueError("no path but the number of a database, such as /0")
    names = set()
    for each in query.split("&") if query is not None else ():
        name, _, value = each.partition("=")
        if name not in PARAMETERS or name in names:
            raise ValueError(f"only the parameters {', '.join(PARAMETERS)}, each once")
        if not re.fullmatch(PARAMETERS[name], value):
            raise ValueError(f"{PARAMETERS[name].replace('|', ' or ')} as {name}")
        names.add(name)


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return bool(re.fullmatch(_HOST, host) and parts.hostname) and parts.port != 0
    except ValueError:
        return False
