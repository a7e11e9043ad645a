"""What must hold of the whole audit record of a partition, whatever has happened to its brokers."""

import re

from partq.core.ranges import Ranges
from partq.wire import audit


def encode_group(previous, records, *, sequence, at_ms, broker, broker_epoch):
    """Return the group that `store/parts/audit.lua` makes of records: its reference."""
    name = re.sub(r"[\x00-\x1f%\x7f]", lambda found: f"%{ord(found[0]):02X}", broker)
    head = f"{audit.VERSION} {sequence} {at_ms} {broker_epoch} {name}\n"
    data = b"".join((head.encode(), *records))
    return audit.AuditGroup(previous, audit.chain_of(previous, data), data)


def decode_group(partition, group):
    """Return the records of one group, as objects."""
    columns = audit.decode_columns(partition, [group])
    return [
        audit.AuditRecord(**dict(zip(audit.COLUMNS, row, strict=True)))
        for row in zip(*(columns[name] for name in audit.COLUMNS), strict=True)
    ]


def check_chain(groups, start=0):
    """Each group follows the one before, and its bytes are those that were chained."""
    chain = groups[0].previous
    for sequence, group in enumerate(groups, start):
        assert (group.sequence, group.previous, group.is_whole) == (sequence, chain, True)
        assert written_again(group) == group, "an archive has the columns, and chains their bytes"
        chain = group.chain


def written_again(group):
    """Return the group that follows from what is read of one."""
    read = decode_group("1.0", group)
    names = [name for name, _ in audit.FIELDS + audit.LATER_FIELDS if name != "kind"]
    records = [
        audit.encode_record(
            each.kind, slots=each.slots, **{name: getattr(each, name) for name in names}
        )
        for each in read
    ]
    places = ("sequence", "at_ms", "broker", "broker_epoch")
    return encode_group(
        group.previous, records, **{name: getattr(read[0], name) for name in places}
    )


def check_record(partition, groups, *, group, end, cursor, acked):
    """Compare a record that was never trimmed with what is stored; return its records.

    `group`: the one whose deliveries and acks are looked at. `end`: of the log. `cursor`, `acked`:
    what is on record of the group.
    """
    check_chain(groups)
    records = [record for each in groups for record in decode_group(partition, each)]
    mine = [record for record in records if record.group == group]
    assert _once(record for record in records if record.kind == "publish") == (
        [(0, end)] if end else []
    )
    _check_done(mine, Ranges([(0, cursor), *acked]))
    _check_epochs([record.broker_epoch for record in records if record.kind == "claim"])
    _check_epochs([record.epoch for record in mine if record.kind in {"bind", "commit", "reset"}])
    epoch = 0
    for record in mine:
        if record.kind in {"bind", "commit", "reset"}:
            epoch = record.epoch
        elif record.kind in {"deliver", "ack", "nack", "release"} and record.flow >= 0:
            assert record.epoch == epoch, f"{record} is under an epoch that is not in force"
    delivered = Ranges()
    for record in mine:
        if record.kind == "deliver":
            delivered.add(record.first, record.stop)
        elif record.kind == "ack" and not record.flags:
            told = delivered.count(record.first, record.stop)
            assert told == record.stop - record.first, f"{record} comes before its delivery"
    return records


def _once(records):
    """Return the offsets that records speak of, as ranges; each is in one record only."""
    found = Ranges()
    for record in records:
        assert not found.count(record.first, record.stop), f"{record}: told twice"
        found.add(record.first, record.stop)
    return found.pairs()


def _check_done(records, stored):
    """Compare what a group has done with, each offset once unless it was reset, with its cursor."""
    done, waiting, sent_all_the_same = Ranges(), {}, Ranges()
    for record in records:
        match record.kind:
            case "begin":
                done.add(record.first, record.stop)
            case "end":
                done, waiting, sent_all_the_same = Ranges(), {}, Ranges()
            case "reset":
                done = Ranges([(0, record.first)])
                # A dead letter on its way continues; whether its message comes again is open.
                for offset in waiting.values():
                    sent_all_the_same.add(offset, offset + 1)
            case "dead_letter" if record.flags:
                waiting.pop(record.number, None)
            case "ack" | "expired" | "dead_letter":
                assert not done.count(record.first, record.stop), f"{record}: done twice"
                done.add(record.first, record.stop)
                if record.kind == "dead_letter":
                    waiting[record.number] = record.first
    for part in sent_all_the_same.pairs():
        for each in stored.within(*part):
            done.add(*each)
    assert done.pairs() == stored.pairs(), "what is done, and no more"


def _check_epochs(epochs):
    assert epochs == sorted(set(epochs)), "each epoch begins once, above the one before"
