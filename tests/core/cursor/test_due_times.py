"""Numbers that are due at some time: the next one, and what they cost."""

import random
from math import inf

from partq.core.cursor.due_times import DueTimes


def test_they_come_by_rising_dues_and_a_later_due_replaces_one():
    dues = DueTimes()
    for number, due in ((7, 30), (8, 10), (9, 20), (7, 5), (8, 40), (6, inf)):
        dues.put(number, due)
    assert (dues.next_due, len(dues), 8 in dues) == (5, 4, True)
    assert dues.pop(20) == [7, 9]
    assert (dues.next_due, dues.remove(8), dues.remove(8)) == (40, True, False)
    assert (dues.next_due, dues.pop(1e9), dues.by_number) == (inf, [], {6: inf})


def test_it_is_what_a_look_at_all_of_them_is():
    dice = random.Random(5)
    dues, plain = DueTimes(), dict[int, float]()
    for now in range(3000):
        number = dice.randrange(40)
        if dice.random() < 0.4:
            assert dues.remove(number) == (plain.pop(number, None) is not None)
        else:
            plain[number] = now + dice.choice((1, 5, 5000))
            dues.put(number, plain[number])
        due = sorted((at, each) for each, at in plain.items() if at <= now)
        assert dues.pop(now) == [each for _, each in due]
        for _, each in due:
            del plain[each]
        assert (dues.next_due, dues.by_number) == (min(plain.values(), default=inf), plain)


def test_what_is_removed_long_before_its_time_leaves_nothing():
    dues = DueTimes()
    for number in range(1000):
        dues.put(number, 86_400)
        dues.remove(number)
    assert len(dues._heap) < 100
