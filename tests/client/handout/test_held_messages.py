"""Messages that are held: what is said to be ready is what is handed out."""

from types import SimpleNamespace

from partq.client.handout.held_messages import HeldMessages


class Target:
    is_ended = False
    is_paused = False
    rewound_from = None

    def __init__(self, *, may_hand_out):
        self.may_hand_out = may_hand_out

    def pop_rewound(self):
        start, self.rewound_from = self.rewound_from, None
        return start


def message(key, target, offset, given_back=()):
    batch = SimpleNamespace(target=target, is_given_back=lambda offset: offset in given_back)
    return SimpleNamespace(queue="orders", key=key, batch=batch, offset=offset)


def test_a_key_that_waits_in_one_partition_counts_in_no_other():
    """Its partition waits for the answer to a nack; the key has moved since to another one."""
    waits, goes = Target(may_hand_out=False), Target(may_hand_out=True)
    held = HeldMessages()
    for each in (message("a", waits, 5), message("a", goes, 0), message("b", goes, 1)):
        held.add(each)
    assert held.ready_count() == 1
    assert [each.key for each in held.take_many(3)] == ["b"]
    assert held.ready_count() == 0
    waits.may_hand_out = True
    assert held.ready_count() == 2
    assert [each.offset for each in held.take_many(3)] == [5, 0]


def test_what_is_put_back_comes_first_but_for_what_is_redelivered():
    held, target = HeldMessages(), Target(may_hand_out=True)
    taken = [message(key, target, offset, {1}) for offset, key in enumerate("abcd")]
    target.rewound_from = 0  # and they were redelivered since
    held.may_put_back(taken)
    target.rewound_from = 3  # now "d" comes again
    held.add(message("e", other := Target(may_hand_out=True), 0))
    held.put_back(taken)
    assert [each.key for each in held.take_many(9)] == ["a", "c", "e"]

    held.put_back([message("a", target, 0)])
    target.is_ended = True
    held.put_back([message("b", target, 1), message("f", other, 1)])
    assert [each.key for each in held.take_many(9)] == ["f"]


def test_nothing_passes_what_is_held_of_a_partition_that_stepped_back():
    held, target = HeldMessages(), Target(may_hand_out=True)
    held.add(message("b", target, 7))
    taken = [message("a", target, 4)]
    held.may_put_back(taken)
    target.rewound_from = 5
    held.put_back(taken)
    assert [each.offset for each in held.take_many(9)] == [4]
