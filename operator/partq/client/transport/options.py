"""What every client of a queue is made with: its brokers, its name, and the right to call them."""

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TypedDict

from partq.client.arguments import broker_urls, check_names, check_token
from partq.errors import SettingsError


class ConnectionArguments(TypedDict):
    """The arguments that `Producer`, `Consumer` and all the others share."""

    url: str
    queue: str
    token: str | None
    namespace: str | None
    ca_file: str | Path | None


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Which queue a client is of, where its brokers are, and as whom it calls them.

    Raises:
        SettingsError: `url` names no broker, no queue or namespace can have the name, the token is
            not a text or has a line end, or `ca_file` is not a path.
    """

    url: str
    """Of one broker, or of several with commas between them; they name the others."""
    queue: str
    """Its name."""
    _: KW_ONLY
    token: str | None = field(default=None, repr=False)
    """Bearer token of the caller; None: it has none."""
    namespace: str | None = None
    """Of the queue; None: the broker's."""
    ca_file: str | Path | None = None
    """PEM of the CAs that may sign the brokers' certificates; None: the system's."""

    def __post_init__(self) -> None:
        broker_urls(self.url)
        check_names({"queue": self.queue, "namespace": self.namespace}, needed=("queue",))
        check_token(self.token)
        if not isinstance(self.ca_file, str | Path | None):
            raise SettingsError(f"ca_file: got {type(self.ca_file).__name__}, expected a path")

    def arguments(self) -> ConnectionArguments:
        """Return them as a client takes them: `Producer(**options.arguments())`."""
        return ConnectionArguments(
            url=self.url,
            queue=self.queue,
            token=self.token,
            namespace=self.namespace,
            ca_file=self.ca_file,
        )
