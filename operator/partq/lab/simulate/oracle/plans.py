"""What coordinators rely on: living leases, brokers that have answered, the next attempt."""

from collections.abc import Callable, Sequence
from typing import Final

from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.oracle.facts import LeaseFacts
from partq.store.pipelined_connection import Reply

FRESH_S: Final = 1.0
"""A lease that was renewed so short a time ago is over for nobody."""


class Plans:
    """Follows the scripts of leases and attempts."""

    def __init__(
        self, lease_key: bytes, fail: Callable[[str, str], None], now: Callable[[], float]
    ) -> None:
        self.leases: dict[str, LeaseFacts] = {}
        """Of each broker, until it has given its lease up."""
        self.on_renewed: dict[Process, Callable[[], None]] = {}
        """Told as a process has renewed its lease."""
        self._lease_key = lease_key
        self._fail = fail
        self._now = now
        self._heard: dict[Process, set[str]] = {}
        self._began_at: dict[Process, float] = {}
        """When each coordinator heard of a broker for the first time."""
        self._last_attempts: dict[bytes, int] = {}
        """The last one that was drawn, by where each group keeps it."""

    def heard(self, coordinator: Process, broker: str) -> None:
        """Learn that a coordinator has got the state of a broker."""
        self._heard.setdefault(coordinator, set()).add(broker)
        self._began_at.setdefault(coordinator, self._now())

    def follow(
        self,
        process: Process,
        script: str,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Reply,
    ) -> None:
        """Take a script's answer."""
        if script == "erase_group" and answer:
            for key in keys:
                self._last_attempts.pop(key, None)
        elif script == "draw_attempt" and answer > 0:
            last = self._last_attempts.get(keys[0], 0)
            if answer <= last:
                self._fail("attempts", f"attempt {answer} was drawn after {last}")
            self._last_attempts[keys[0]] = max(last, answer)
            self._judge(process)
        elif keys[0] != self._lease_key:
            return
        elif script == "release_lease":
            self.leases.pop(args[0].decode(), None)
        elif script == "renew_lease" and not isinstance(answer, int):
            broker, now = args[0].decode(), self._now()
            known = self.leases.get(broker)
            is_new = known is None or now - known.renewed_at >= FRESH_S
            self.leases[broker] = LeaseFacts(now if known is None or is_new else known.since, now)
            self.on_renewed[process]()

    def _judge(self, coordinator: Process) -> None:
        """Check that a planner has heard of every broker that has lived since it began to look.

        One that came later is no part of that, nor is one that has just come, or come back: it may
        have done so since the leases were read.
        """
        now = self._now()
        began_at = self._began_at.get(coordinator, now)
        living = {
            broker
            for broker, lease in self.leases.items()
            if now - lease.renewed_at < FRESH_S <= now - lease.since and lease.since <= began_at
        }
        if unheard := living - self._heard.get(coordinator, set()):
            self._fail("lists", f"planned without having heard of {', '.join(sorted(unheard))}")
