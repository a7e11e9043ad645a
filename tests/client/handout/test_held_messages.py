"""Messages that are held: what is said to be ready is what is handed out."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from partq.client.handout.held_messages import HeldMessages


class Target:
    is_ended = False
    is_paused = False
    rewound_from = None
    held_up: frozenset[str] = frozenset()

    def __init__(self, *, may_hand_out):
        self.may_hand_out = may_hand_out
        self.is_full = False

    def set_full(self, is_full):
        self.is_full = is_full

    def pop_rewound(self):
        start, self.rewound_from = self.rewound_from, None
        return start


class Held(SimpleNamespace):
    """Counts how often its key is read, and how often messages are compared with each other."""

    looks = 0

    def __getattribute__(self, name):
        Held.looks += name == "key"
        return super().__getattribute__(name)

    def __eq__(self, other):
        Held.looks += 1
        return self is other

    __hash__ = None


def message(key, target, offset, given_back=()):
    batch = SimpleNamespace(target=target, is_given_back=lambda offset: offset in given_back)
    return Held(queue="orders", key=key, slot=key, batch=batch, offset=offset, raw_value=b"12")


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


# ---- compared with looking through all of them ----


class Looking:
    """What is to be handed out, found by looking through all messages in the order of taking."""

    def __init__(self):
        self.held, self.busy = [], set()

    def take_many(self, count):
        found, passed = [], set()
        for each in self.held:
            if len(found) == count:
                break
            if each.key is not None and each.key in self.busy | passed:
                continue
            target = each.batch.target
            if target.may_hand_out and each.slot not in target.held_up:
                found.append(each)
            else:
                passed.add(each.key)
        self.held = [each for each in self.held if not any(each is other for other in found)]
        return found

    def forget(self, target, start):
        self.held = [
            each for each in self.held if each.batch.target is not target or each.offset < start
        ]


def places(messages):
    return [(each.key, each.offset) for each in messages]


TARGETS = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["a", "b", "c", None]), TARGETS),
        st.tuples(st.just("begin")),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("put back"), st.integers(1, 5)),
        st.tuples(st.just("rewind"), TARGETS, st.integers(0, 20)),
        st.tuples(st.just("turn"), TARGETS),
        st.tuples(st.just("hold up"), TARGETS, st.sampled_from(["", "a", "ab"])),
        st.tuples(st.just("lose"), TARGETS),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_order_of_each_key_is_that_of_looking_through_all_messages(steps):
    held, looking = HeldMessages(), Looking()
    targets = [Target(may_hand_out=True) for _ in range(3)]
    begun, offset = [], 0
    for name, *step in steps:
        match name, step:
            case "add", (key, number):
                each = message(key, targets[number], offset)
                offset += 1
                held.add(each)
                looking.held.append(each)
            case "begin", _:
                found = held.begin()
                assert places([found] if found else []) == places(looking.take_many(1))
                if found:
                    begun.append(found)
                    looking.busy |= {found.key} - {None}
            case "end", (number,) if begun:
                each = begun.pop(number % len(begun))
                held.end(each)
                looking.busy.discard(each.key)
            case "take", (count,):
                assert places(held.take_many(count)) == places(looking.take_many(count))
            case "put back", (count,):
                found = held.take_many(count)
                assert places(found) == places(looking.take_many(count))
                held.may_put_back(found)
                held.put_back(found)
                looking.held[:0] = found
            case "rewind", (number, start):
                targets[number].rewound_from = start
                looking.forget(targets[number], start)
            case "turn", (number,):
                targets[number].may_hand_out = not targets[number].may_hand_out
            case "hold up", (number, slots):
                targets[number].held_up = frozenset(slots)
                held.look_again()
            case "lose", (number,):
                targets[number].is_ended = True
                looking.forget(targets[number], 0)
                targets[number] = Target(may_hand_out=True)
        ready = Looking()
        ready.held = looking.held
        assert held.ready_count() == len(ready.take_many(len(ready.held)))
        assert len(held) == len(looking.held)
        assert held.unpaused_bytes() == 2 * len(looking.held)
    held.end_all()
    looking.busy.clear()
    assert places(held.take_many(99)) == places(looking.take_many(99))


def test_a_message_costs_as_many_looks_however_many_are_held():
    def looks(count):
        held, target = HeldMessages(), Target(may_hand_out=True)
        before = Held.looks
        for offset in range(2 * count):
            held.add(message(f"k{offset % count}", target, offset))
        begun = [held.begin() for _ in range(count)]
        assert held.begin() is None, "each key has a call under way"
        while begun:
            held.end(begun.pop(0))
            if following := held.begin():
                begun.append(following)
        assert not len(held)
        return (Held.looks - before) / count

    assert looks(200) == looks(20)


def test_a_message_that_is_forgotten_is_looked_for_once():
    held = HeldMessages()
    stays, goes = Target(may_hand_out=True), Target(may_hand_out=True)
    for target in (stays, goes):
        for offset in range(100):
            held.add(message("k" if offset % 2 else None, target, offset))
    goes.is_ended = True
    before = Held.looks
    assert held.ready_count() == 100
    assert Held.looks - before < 1000
