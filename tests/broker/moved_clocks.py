"""A broker's clocks, which a test moves ahead."""

from typing import TypeVar

from partq.broker.broker import Broker
from partq.broker.ownership.clock import boot_time
from partq.core.clocks.clock_watch import ClockWatch

Watch = TypeVar("Watch", bound=ClockWatch)


class MovableClock:
    """The machine's clock, moved ahead at will."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return boot_time() + self.ahead_s


class StoodClock(MovableClock):
    """A clock that stands still but where a test moves it, by halves of seconds without error."""

    def __init__(self) -> None:
        super().__init__()
        self.begun_at = float(int(boot_time()))

    def __call__(self) -> float:
        return self.begun_at + self.ahead_s


class AheadWatch(ClockWatch):
    """Redis's clock as a broker knows it, moved ahead at will for times to live of messages."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def estimate_ms(self, now: float) -> float | None:
        store_ms = super().estimate_ms(now)
        return None if store_ms is None else store_ms + self.ahead_ms


def put_watch(broker: Broker, watch: Watch) -> Watch:
    """Have the broker know the clock of its only Redis by this."""
    (node,) = broker.store.nodes()
    broker.expiry.clocks._watches[node.name] = watch
    return watch
