"""Which queue the options name, and how it is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from partq.client.transport.options import ConnectionOptions
from partq.errors import BadRequestError
from partq.excerpts import excerpt

CONNECTION_OPTIONS = ("url", "queue", "namespace", "token", "tokenFile", "caFile", "timeoutSeconds")
DEFAULT_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 3600.0
ANSWER_S = 5.0
"""How long a query waits, when it begins, for anybody to answer at the URL."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client of the queue is made with."""

    url: str
    queue: str
    namespace: str | None
    given_token: str | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    timeout_s: float
    """For how long a partition that nobody serves is waited for, in seconds."""
    answer_s: float
    """For how long nobody may answer at the URL when something begins, in seconds."""

    def options(self) -> ConnectionOptions:
        """Return what a client of the queue is made with; raises as `token`."""
        return ConnectionOptions(
            self.url, self.queue, token=self.token(), namespace=self.namespace, ca_file=self.ca_file
        )

    def token(self) -> str | None:
        """Return the token; a file is read again each time, so that it may be rotated.

        Raises:
            BadRequestError: the file cannot be read, or is empty.
        """
        if self.token_file is None:
            return self.given_token
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise BadRequestError(
                f"option tokenFile: {self.token_file}: {error}; it has to be there on the driver "
                "and on every executor"
            ) from error
        if not token:
            raise BadRequestError(f"option tokenFile: {self.token_file} is empty")
        return token


def connection_of(given: Mapping[str, str]) -> ClientOptions:
    """Read the options that are the same for reading and writing; their names are of any case.

    Raises:
        BadRequestError: one is missing, unusable or contradicts another.
    """
    options = {name.lower(): str(value).strip() for name, value in given.items()}
    for name in ("url", "queue"):
        if not options.get(name):
            raise BadRequestError(f"option {name} is missing; expected {_EXPECTED[name]}")
    if "@" in options["url"]:
        raise BadRequestError(
            "option url: got a user or a password (what is before an @); expected "
            f"{_EXPECTED['url']}; give the token that brokers know a caller by"
        )
    for url in options["url"].split(","):
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise BadRequestError(
                f"option url: {excerpt(url.strip())!r}; expected {_EXPECTED['url']}"
            )
    for name, title in (("token", "token"), ("tokenfile", "tokenFile")):
        if options.get(name) == "":
            raise BadRequestError(f"option {title} is empty; set it, or leave it out")
    if "token" in options and "tokenfile" in options:
        raise BadRequestError("options token and tokenFile contradict each other; set one")
    ca_file = options.get("cafile") or None
    if ca_file is not None and not Path(ca_file).is_file():
        raise BadRequestError(f"option caFile: there is no file {ca_file}")
    timeout_s = _timeout_s(options.get("timeoutseconds") or str(DEFAULT_TIMEOUT_S))
    return ClientOptions(
        url=options["url"],
        queue=options["queue"],
        namespace=options.get("namespace") or None,
        given_token=options.get("token"),
        token_file=options.get("tokenfile"),
        ca_file=ca_file,
        timeout_s=timeout_s,
        answer_s=min(timeout_s, ANSWER_S),
    )


_EXPECTED = {
    "url": "http://HOST:PORT of a broker, or several with commas between them",
    "queue": "the name of a queue",
}


def _timeout_s(text: str) -> float:
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise BadRequestError(
            f"option timeoutSeconds: {excerpt(text)!r}; expected seconds, above 0 and at most "
            f"{MAX_TIMEOUT_S:g}"
        )
    return timeout_s
