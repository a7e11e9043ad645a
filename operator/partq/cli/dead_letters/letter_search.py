"""Dead letters of a key or with a reason, among all that a queue holds."""

from typing import NamedTuple

from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.core.dead_letters import HEADER_PREFIX, REASON_HEADER
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedMessage

PAGE = 1000
MAX_LETTERS_SEARCHED = 100_000
"""The most messages that a search reads; then it ends with what it has found."""
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


class FoundLetters(NamedTuple):
    """What a search has found."""

    answer: BrowseAnswer
    """As of one browse; its `next` is where the search ended."""
    searched: int
    """How many messages were read."""
    is_cut: bool
    """Whether `MAX_LETTERS_SEARCHED` has ended the search: later messages may match, too."""


async def find_letters(
    connection: QueueAddress, names: list[str], wanted: LetterFilter, limit: int
) -> FoundLetters:
    """Return the oldest `limit` dead letters that are wanted.

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
            most = min(PAGE, MAX_LETTERS_SEARCHED - searched)
            body = BrowseBody(names, offsets, max_messages=most)
            page = await session.ask("POST", "/browse", BrowseAnswer, body)
            searched += len(page.messages)
            found += filter(wanted.has, page.messages)
            trimmed |= page.trimmed
            for name, holes in page.missing.items():
                missing.setdefault(name, []).extend(holes)
            offsets = page.next
            is_done = len(found) >= limit or page.why == "end" or bool(page.unavailable)
            if is_done or searched >= MAX_LETTERS_SEARCHED:
                break
    answer = BrowseAnswer(found[:limit], offsets, page.why, trimmed, page.unavailable, missing)
    return FoundLetters(answer, searched, is_cut=not is_done)
