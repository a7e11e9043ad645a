"""Faults in the order of a key to plant into a recorded run of a group of order Key."""

from tests.pipeline.audit.model import Partition
from tests.pipeline.audit.planting import Planted


def keyed(run: Partition):
    """Return the group, the first and the end of new messages, and two of these of one key."""
    group = run.groups["workers"]
    first = run.end
    seen: dict[str, int] = {}
    while True:
        run.publish()
        for message in run.messages:
            if message.offset >= first:
                lower = seen.setdefault(str(message.key), message.offset)
                if lower + 1 < message.offset:
                    return group, first, run.end, lower, message.offset


def deliver(group, *spans: tuple[int, int], cause: str = "") -> None:
    for first, stop in spans:
        if first < stop:
            fields = {"first": first, "stop": stop, "delivery": group.book.number}
            group.write("deliver", cause=cause, flags="keyed", **fields)


def key_out_of_order(run: Partition) -> Planted:
    """A message is sent for the first time behind a later one of its key."""
    group, first, stop, lower, _ = keyed(run)
    deliver(group, (first, lower), (lower + 1, stop), (lower, lower + 1))
    group.write("ack", first=first, stop=stop)
    return Planted(run, "out_of_order", lower, lower + 1)


def key_passed_what_failed(run: Partition) -> Planted:
    """A message that was given back waits, and a later one of its key is processed meanwhile."""
    group, first, stop, lower, later = keyed(run)
    deliver(group, (first, stop))
    group.write("nack", first=lower, stop=lower + 1, cause="nack")
    group.write("release", first=later, stop=later + 1, flags="keyed")
    deliver(group, (later, later + 1))
    group.write("ack", first=later, stop=later + 1)
    deliver(group, (lower, lower + 1), cause="nack")
    for low, high in ((first, later), (later + 1, stop)):
        if low < high:
            group.write("ack", first=low, stop=high)
    return Planted(run, "out_of_order", later, later + 1)


KEYED_PLANTS = [key_out_of_order, key_passed_what_failed]
