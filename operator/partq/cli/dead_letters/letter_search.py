"""Dead letters of a key or with a reason, among all that a queue holds."""

from typing import NamedTuple

import click

from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.core.dead_letters import HEADER_PREFIX, REASON_HEADER
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedMessage

PAGE = 1000
MAX_SEARCHED = 100_000
"""The most messages that a search reads."""
REASON_HEADERS = (HEADER_PREFIX + "reason", REASON_HEADER)
"""Of the broker, and of the application."""


class LetterFilter(NamedTuple):
    """Which dead letters are looked for; None: any."""

    key: str | None
    reason: str | None

    def has(self, row: BrowsedMessage) -> bool:
        """Say whether a message of a broker's answer is one of them."""
        headers = {} if row.headers is UNSET else row.headers
        reasons = [headers.get(name) for name in REASON_HEADERS]
        return (self.key is None or row.key == self.key) and (
            self.reason is None or self.reason in reasons
        )


async def find_letters(
    connection: QueueAddress, names: list[str], wanted: LetterFilter, limit: int
) -> BrowseAnswer:
    """Return the oldest `limit` dead letters that are wanted, as one answer to a browse.

    Its `next` is where the search ended.

    Raises:
        PartqError: the brokers do not answer, or refuse.
    """
    found: list[BrowsedMessage] = []
    trimmed: dict[str, int] = {}
    missing: dict[str, list[tuple[int, int]]] = {}
    offsets: dict[str, int] = {}
    searched = 0
    async with open_session(connection) as session:
        while True:
            body = BrowseBody(names, offsets, max_messages=PAGE)
            page = await session.ask("POST", "/browse", BrowseAnswer, body)
            searched += len(page.messages)
            found += filter(wanted.has, page.messages)
            trimmed |= page.trimmed
            for name, holes in page.missing.items():
                missing.setdefault(name, []).extend(holes)
            offsets = page.next
            is_done = len(found) >= limit or page.why == "end" or bool(page.unavailable)
            if is_done or searched >= MAX_SEARCHED:
                break
    if not is_done:
        click.echo(
            f"partq: ended after {searched:,} messages; name a --partition to look further",
            err=True,
        )
    return BrowseAnswer(found[:limit], offsets, page.why, trimmed, page.unavailable, missing)
