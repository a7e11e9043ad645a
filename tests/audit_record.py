"""What must hold of the whole audit record of a partition, whatever has happened to its brokers."""

from partq.core.ranges import Ranges
from partq.wire import audit


def check_chain(groups, start=0):
    """Each group follows the one before, and its bytes are those that were chained."""
    chain = groups[0].previous
    for sequence, group in enumerate(groups, start):
        assert (group.sequence, group.previous, group.is_whole) == (sequence, chain, True)
        assert written_again(group) == group, "an archive has the columns, and chains their bytes"
        chain = group.chain


def written_again(group):
    """Return the group that follows from what is read of one."""
    read = audit.decode_group("1.0", group)
    names = [name for name, _ in audit.FIELDS if name != "kind"]
    records = [
        audit.encode_record(
            each.kind, slots=each.slots, **{name: getattr(each, name) for name in names}
        )
        for each in read
    ]
    places = ("sequence", "at_ms", "broker", "broker_epoch")
    return audit.encode_group(
        group.previous, records, **{name: getattr(read[0], name) for name in places}
    )


def check_record(partition, groups, *, group, end, cursor, acked):
    """Compare a record that was never trimmed with what is stored; return its records.

    `group`: the one whose deliveries and acks are looked at. `end`: of the log. `cursor`, `acked`:
    what is on record of the group.
    """
    check_chain(groups)
    records = [record for each in groups for record in audit.decode_group(partition, each)]
    mine = [record for record in records if record.group == group]
    assert _once(record for record in records if record.kind == "publish") == (
        [(0, end)] if end else []
    )
    done = (record for record in mine if record.kind in {"ack", "expired"})
    assert _once(done) == Ranges([(0, cursor), *acked]).pairs(), "each ack that counts, once"
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


def _check_epochs(epochs):
    assert epochs == sorted(set(epochs)), "each epoch begins once, above the one before"
