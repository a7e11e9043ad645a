"""A consumer of sessions as a process, which writes down what it does; a test kills it."""

import asyncio
import json
import sys
import time
from pathlib import Path

from partq import FencedError, NoSessionError, SessionConsumer, UnavailableError


class Clerk:
    """Accepts one session after another, and checks each message against the state."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal.open("a", buffering=1, encoding="utf-8")

    def note(self, what, session, **more):
        row = {"what": what, "at": time.monotonic(), "session": session.session_id}
        self._journal.write(json.dumps({**row, "lock": session.lock, **more}) + "\n")

    async def work(self, **place):
        async with SessionConsumer(**place, idle_s=0.2, handle_signals=False) as clerks:
            while True:
                try:
                    session = await clerks.accept(timeout_s=1)
                except (NoSessionError, UnavailableError):
                    continue
                try:
                    async with session:
                        await self.serve(session)
                except FencedError:
                    self.note("lost", session)

    async def serve(self, session):
        """Acknowledge each message with its number as the state; the state is the one before."""
        self.note("has", session)
        async for message in session:
            number = int(message.value)
            try:
                before = int(await session.state() or b"0")
                self.note("begins", session, number=number, state=before)
                await session.ack(message, state=str(number).encode(), confirmed=True)
            except FencedError:
                if session.is_lost:
                    raise
                continue  # the connection was lost: the message is redelivered
            self.note("done", session, number=number)


def main(url, token, member, journal):
    place = {"url": url, "queue": "orders", "group": "clerks", "token": token, "member": member}
    asyncio.run(Clerk(Path(journal)).work(**place))


if __name__ == "__main__":
    main(*sys.argv[1:])
