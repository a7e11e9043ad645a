"""Messages that were taken from their windows and not handed to the application yet."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from partq.client.consume.deliveries import AckTarget, Delivery
from partq.core.model import PartitionId

MessageKey = tuple[str, str]
"""A queue and a partition key: messages that have the same are in order."""


def key_of(delivery: Delivery) -> MessageKey | None:
    """Return whose order a message is in; None: it has no key, and no promised order."""
    key = delivery.key
    return None if key is None else (delivery.queue, key)


class HeldMessages:
    """A short list of messages in the order in which they were taken.

    For the broker they have begun. A message that is redelivered is forgotten: its partition was
    taken away, or has stepped back to a nacked message before it.
    """

    def __init__(self) -> None:
        self._held: list[Delivery] = []
        self._targets: Counter[AckTarget] = Counter()
        """How many messages of each partition are held: looked through instead of the messages."""

    def __len__(self) -> int:
        return len(self._held)

    def unpaused_count(self) -> int:
        """Return how many are held, without those whose partition the application has paused."""
        paused = sum(count for target, count in self._targets.items() if target.is_paused)
        return len(self._held) - paused

    def ready_count(self) -> int:
        """Return how many may be handed out now."""
        return sum(1 for _ in self._ready_places(()))

    def add(self, delivery: Delivery) -> None:
        """Hold a message that was taken in this turn of the event loop."""
        target = delivery.batch.target
        self._forget_redelivered(target)  # what happened before says nothing of this message
        self._held.append(delivery)
        self._targets[target] += 1

    def may_put_back(self, deliveries: list[Delivery]) -> None:
        """Note that these were taken in this turn of the event loop, and may be put back."""
        for target in {each.batch.target for each in deliveries}:
            self._forget_redelivered(target)  # what happened before says nothing of them

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Hold messages again, before all others, but for those that are redelivered."""
        targets = {each.batch.target for each in deliveries}
        redelivered = {target: self._forget_redelivered(target) for target in targets}
        kept = []
        for delivery in deliveries:
            start = redelivered[delivery.batch.target]
            is_redelivered = start is not None and delivery.offset >= start
            if not is_redelivered and not delivery.batch.is_given_back(delivery.offset):
                kept.append(delivery)
        self._held[:0] = kept
        self._targets.update(each.batch.target for each in kept)

    def take(self, busy: Collection[MessageKey] = ()) -> Delivery | None:
        """Return the first message that may be handed out now, and whose key is not busy."""
        found = self._take_up_to(1, busy)
        return found[0] if found else None

    def has_of(self, partition: PartitionId) -> bool:
        """Whether a message of a partition is held: what is ready is behind it."""
        self._forget_all_redelivered()
        return any(each.partition == partition for each in self._held)

    def offsets_of(self, queue: str, partition: PartitionId) -> list[int]:
        """Return the offsets of the messages of a partition of a queue that are held."""
        self._forget_all_redelivered()
        held = (each for each in self._held if each.partition == partition)
        return [each.offset for each in held if each.queue == queue]

    def pop_of(self, partition: PartitionId) -> Delivery | None:
        """Return the first message of a partition, if it may be handed out now."""
        for place in self._ready_places(()):
            if self._held[place].partition == partition:
                delivery = self._held.pop(place)
                self._count_down(delivery)
                return delivery
        return None

    def take_many(self, count: int) -> list[Delivery]:
        """Return up to `count` messages that may be handed out now."""
        return self._take_up_to(count, ())

    def _take_up_to(self, count: int, busy: Collection[MessageKey]) -> list[Delivery]:
        places = list(islice(self._ready_places(busy), count))
        found = [self._held[place] for place in places]
        if len(places) == 1:
            del self._held[places[0]]
        elif places:
            gone = set(places)
            self._held = [each for place, each in enumerate(self._held) if place not in gone]
        for delivery in found:
            self._count_down(delivery)
        return found

    def _ready_places(self, busy: Collection[MessageKey]) -> Iterator[int]:
        """Yield the places of what may be handed out now: nothing behind another of its key."""
        self._forget_all_redelivered()
        passed: set[MessageKey] = set()
        for place, delivery in enumerate(self._held):
            key = key_of(delivery)
            if key is not None and (key in busy or key in passed):
                continue
            if delivery.batch.target.may_hand_out:
                yield place
            elif key is not None:
                passed.add(key)

    def _forget_all_redelivered(self) -> None:
        for target in list(self._targets):
            self._forget_redelivered(target)

    def _forget_redelivered(self, target: AckTarget) -> int | None:
        """Forget what is redelivered of a partition; return from where on it is."""
        start = 0 if target.is_ended else target.pop_rewound()
        if start is None or target not in self._targets:
            return start
        for delivery in [each for each in self._held if each.batch.target is target]:
            if delivery.offset >= start:
                self._held.remove(delivery)
                self._count_down(delivery)
        return start

    def _count_down(self, delivery: Delivery) -> None:
        target = delivery.batch.target
        self._targets[target] -= 1
        if not self._targets[target]:
            del self._targets[target]
