"""Dead letters of a key or with a reason, among all that a queue holds and has not replayed."""

from typing import NamedTuple

from partq.cli.queues.broker_session import open_session
from partq.cli.queues.connection import QueueAddress
from partq.core.dead_letters import LetterFilter
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import BrowseAnswer, BrowseBody, BrowsedMessage

PAGE = 1000
MAX_LETTERS_SEARCHED = 100_000
"""The most messages that a search reads; then it ends with what it has found."""


class FoundLetters(NamedTuple):
    """What a search has found."""

    answer: BrowseAnswer
    """As of one browse; its `next` is where the search ended."""
    searched: int
    """How many messages were read."""
    replayed: int
    """How many were left out, as they were sent back and are not freed yet."""
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
    searched = replayed = 0
    async with open_session(connection) as session:
        while True:
            most = min(PAGE, MAX_LETTERS_SEARCHED - searched)
            body = BrowseBody(names, offsets, max_messages=most)
            page = await session.ask("POST", "/browse", BrowseAnswer, body)
            searched += len(page.messages)
            rows = [row for row in page.messages if _is_wanted(row, wanted)]
            found += [row for row in rows if row.is_replayed is not True]
            replayed += sum(row.is_replayed is True for row in rows)
            trimmed |= page.trimmed
            for name, holes in page.missing.items():
                missing.setdefault(name, []).extend(holes)
            offsets = page.next
            is_done = len(found) >= limit or page.why == "end" or bool(page.unavailable)
            if is_done or searched >= MAX_LETTERS_SEARCHED:
                break
    answer = BrowseAnswer(found[:limit], offsets, page.why, trimmed, page.unavailable, missing)
    return FoundLetters(answer, searched, replayed, is_cut=not is_done)


def _is_wanted(row: BrowsedMessage, wanted: LetterFilter) -> bool:
    key = None if row.key is UNSET else row.key
    return wanted.has(key, {} if row.headers is UNSET else row.headers)
