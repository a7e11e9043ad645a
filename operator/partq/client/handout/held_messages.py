"""Messages that were taken from their windows and not handed to the application yet."""

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator

from partq.client.consume.ack_target import AckTarget
from partq.client.consume.deliveries import Delivery
from partq.core.model import PartitionId

MessageKey = tuple[str, str]
"""A queue and a partition key: messages that have the same are in order."""
_Order = MessageKey | AckTarget
"""What messages are in order of: their key, or for those without a key their partition."""
_Place = tuple[int, _Order]
"""A number that grows with the place of a message among all, and what it is in order of."""


def _order_of(delivery: Delivery) -> _Order:
    key = delivery.key
    return delivery.batch.target if key is None else (delivery.queue, key)


def _is_held_up(delivery: Delivery) -> bool:
    held_up = delivery.batch.target.held_up
    return bool(held_up) and delivery.slot in held_up


class _TargetTotals:
    """What is held of one partition."""

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.firsts: list[_Place] = []
        """A heap of the first message of each order; some have gone, and some come twice."""

    def count_in(self, delivery: Delivery) -> None:
        """Count a message."""
        self.count += 1
        self.size_bytes += len(delivery.raw_value)

    def count_out(self, delivery: Delivery) -> None:
        """Count a message that was taken or forgotten."""
        self.count -= 1
        self.size_bytes -= len(delivery.raw_value)


class HeldMessages:
    """Messages in the order in which they were taken, with those of each key apart.

    For the broker they have begun. A message that is redelivered is forgotten: its partition was
    taken away, has stepped back to a nacked message before it, or its broker asks for it. To take a
    message costs a time that grows with the number of partitions, not with that of the messages.
    """

    def __init__(self) -> None:
        self._orders: dict[_Order, deque[tuple[int, Delivery]]] = {}
        """The messages with their numbers; none is empty."""
        self._totals: dict[AckTarget, _TargetTotals] = {}
        """Of each partition of which a message is held: looked through instead of the messages."""
        self._busy: set[_Order] = set()
        """Keys that have a call under way."""
        self._held_up: dict[_Order, None] = {}
        """Keys of slots that wait for the answer to a nack: they are in no heap."""
        self._count = 0
        self._next, self._before = 0, -1
        """The numbers of the next message that is added, and that is put back before all."""

    def __len__(self) -> int:
        return self._count

    def unpaused_count(self) -> int:
        """Return how many are held, without those whose partition the application has paused."""
        return sum(each.count for target, each in self._totals.items() if not target.is_paused)

    def unpaused_bytes(self) -> int:
        """Return the size of the values of what `unpaused_count` counts."""
        return sum(each.size_bytes for target, each in self._totals.items() if not target.is_paused)

    def count_of(self, target: AckTarget) -> tuple[int, int]:
        """Return how many are held of a partition, and the size of their values in bytes."""
        totals = self._totals.get(target)
        return (0, 0) if totals is None else (totals.count, totals.size_bytes)

    def ready_count(self) -> int:
        """Return how many may be handed out now."""
        self._forget_all_redelivered()
        if all(target.may_hand_out and not target.held_up for target in self._totals):
            return self._count
        return sum(1 for _ in self._ready())

    def add(self, delivery: Delivery) -> None:
        """Hold a message that was taken in this turn of the event loop."""
        target = delivery.batch.target
        self._forget_redelivered(target)  # what happened before says nothing of this message
        order = _order_of(delivery)
        held = self._orders.setdefault(order, deque())
        held.append((self._next, delivery))
        self._next += 1
        self._count_in(delivery)
        if len(held) == 1:
            self._note_first(order)

    def may_put_back(self, deliveries: list[Delivery]) -> None:
        """Note that these were taken in this turn of the event loop, and may be put back."""
        for target in {each.batch.target for each in deliveries}:
            self._forget_redelivered(target)  # what happened before says nothing of them

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Hold messages again, before all others, but for those that are redelivered."""
        targets = {each.batch.target for each in deliveries}
        redelivered = {target: self._forget_redelivered(target) for target in targets}
        for delivery in reversed(deliveries):
            start = redelivered[delivery.batch.target]
            is_redelivered = start is not None and delivery.offset >= start
            if is_redelivered or delivery.batch.is_given_back(delivery.offset):
                continue
            order = _order_of(delivery)
            self._orders.setdefault(order, deque()).appendleft((self._before, delivery))
            self._before -= 1
            self._count_in(delivery)
            self._note_first(order)

    def take(self) -> Delivery | None:
        """Return the first message that may be handed out now, and whose key is not busy."""
        found = self.take_many(1)
        return found[0] if found else None

    def begin(self) -> Delivery | None:
        """Take a message as `take`; from now on until `end` its key is busy."""
        delivery = self.take()
        if delivery is not None and delivery.key is not None:
            self._busy.add(_order_of(delivery))
        return delivery

    def end(self, delivery: Delivery) -> None:
        """Note that the key of a message that has begun is not busy any more."""
        order = _order_of(delivery)
        self._busy.discard(order)
        self._note_first(order)

    def end_all(self) -> None:
        """Note that no key is busy any more."""
        ended, self._busy = self._busy, set()
        for order in ended:
            self._note_first(order)

    def take_many(self, count: int) -> list[Delivery]:
        """Return up to `count` messages that may be handed out now, and whose keys are not busy."""
        self._forget_all_redelivered()
        ready = {target for target in self._totals if target.may_hand_out}
        firsts = [first for target in ready if (first := self._first_of(target)) is not None]
        heapq.heapify(firsts)
        found: list[Delivery] = []
        while firsts and len(found) < count:
            number, order = heapq.heappop(firsts)
            if not self._is_first(number, order):
                continue  # it came twice
            delivery = self._pop(order)
            found.append(delivery)
            targets = {delivery.batch.target}
            if (held := self._orders.get(order)) is not None:
                targets.add(held[0][1].batch.target)  # where the key has moved to
            for target in targets & ready:
                if (first := self._first_of(target)) is not None:
                    heapq.heappush(firsts, first)
        return found

    def has_of(self, partition: PartitionId) -> bool:
        """Whether a message of a partition is held: what is ready is behind it."""
        self._forget_all_redelivered()
        return any(target.partition == partition for target in self._totals)

    def offsets_of(self, queue: str, partition: PartitionId) -> list[int]:
        """Return the offsets of the messages of a partition of a queue that are held."""
        self._forget_all_redelivered()
        held = (each for _, each in self._all() if each.partition == partition)
        return [each.offset for each in held if each.queue == queue]

    def pop_of(self, partition: PartitionId) -> Delivery | None:
        """Return the first message of a partition, if it may be handed out now."""
        self._forget_all_redelivered()
        held = [place for place in self._ready() if place[1].partition == partition]
        if not held:
            return None
        first = min(held, key=lambda place: place[0])
        self._remove(_order_of(first[1]), [first])
        return first[1]

    def give_back(self, target: AckTarget, slots: Container[int]) -> list[int]:
        """Forget the messages of some slots of a partition, as its broker asks them back.

        Returns:
            their offsets.
        """
        if target not in self._totals:
            return []
        return self._forget(target, lambda each: each.slot in slots)

    def look_again(self) -> None:
        """Note that messages whose slots were held up may be handed out."""
        held_up, self._held_up = self._held_up, {}
        for order in held_up:
            self._note_first(order)

    def _all(self) -> Iterator[tuple[int, Delivery]]:
        for held in self._orders.values():
            yield from held

    def _ready(self) -> Iterator[tuple[int, Delivery]]:
        """Yield what may be handed out now: nothing behind another of its key that may not."""
        for held in self._orders.values():
            for place in held:
                if not place[1].batch.target.may_hand_out or _is_held_up(place[1]):
                    break
                yield place

    def _pop(self, order: _Order) -> Delivery:
        held = self._orders[order]
        _, delivery = held.popleft()
        if not held:
            del self._orders[order]
        self._count_out(delivery)
        self._note_first(order)
        return delivery

    def _remove(self, order: _Order, gone: Iterable[tuple[int, Delivery]]) -> None:
        numbers = {number for number, _ in gone}
        held = deque(place for place in self._orders[order] if place[0] not in numbers)
        if held:
            self._orders[order] = held
        else:
            del self._orders[order]
        for _, delivery in gone:
            self._count_out(delivery)
        self._note_first(order)

    # ---- the first message of each order ----

    def _note_first(self, order: _Order) -> None:
        if (held := self._orders.get(order)) is not None and order not in self._busy:
            number, delivery = held[0]
            heapq.heappush(self._totals[delivery.batch.target].firsts, (number, order))

    def _is_first(self, number: int, order: _Order) -> bool:
        held = self._orders.get(order)
        return held is not None and held[0][0] == number and order not in self._busy

    def _first_of(self, target: AckTarget) -> _Place | None:
        """Return the first message of a partition that has none of its key before it."""
        totals = self._totals.get(target)
        if totals is None:
            return None
        while totals.firsts:
            number, order = totals.firsts[0]
            if self._is_first(number, order):
                if not _is_held_up(self._orders[order][0][1]):
                    return number, order
                self._held_up[order] = None
            heapq.heappop(totals.firsts)
        return None

    # ---- what is redelivered ----

    def _forget_all_redelivered(self) -> None:
        for target in list(self._totals):
            self._forget_redelivered(target)

    def _forget_redelivered(self, target: AckTarget) -> int | None:
        """Forget what is redelivered of a partition; return from where on it is."""
        start = 0 if target.is_ended else target.pop_rewound()
        if start is None or target not in self._totals:
            return start
        self._forget(target, lambda each: each.offset >= start)
        return start

    def _forget(self, target: AckTarget, is_gone: Callable[[Delivery], bool]) -> list[int]:
        """Forget some messages of a partition; return their offsets."""
        offsets: list[int] = []
        for order, held in list(self._orders.items()):
            of_target = [place for place in held if place[1].batch.target is target]
            if gone := [place for place in of_target if is_gone(place[1])]:
                self._remove(order, gone)
                offsets.extend(each.offset for _, each in gone)
        return offsets

    # ---- totals ----

    def _count_in(self, delivery: Delivery) -> None:
        self._count += 1
        target = delivery.batch.target
        totals = self._totals.get(target)
        if totals is None:
            totals = self._totals[target] = _TargetTotals()
            target.store = self
        totals.count_in(delivery)

    def _count_out(self, delivery: Delivery) -> None:
        self._count -= 1
        totals = self._totals[delivery.batch.target]
        totals.count_out(delivery)
        if not totals.count:
            del self._totals[delivery.batch.target]
