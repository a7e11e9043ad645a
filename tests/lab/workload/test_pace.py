"""When a paced publisher's next message is due, and what holds it up."""

import pytest

from partq.lab.workload.pace import SLOWER, Pace


class Clock:
    """Time that passes only while the publisher rests."""

    def __init__(self, pace):
        self.pace, self.now, self.count = pace, 0.0, 0

    def publish(self, messages):
        """Return the seconds that this takes."""
        began = self.now
        for _ in range(messages):
            self.count += 1
            self.now += max(0.0, self.pace.rest_s(self.count, self.now))
        return self.now - began


def test_messages_are_spread_evenly():
    assert Clock(Pace(50, [], now=0.0)).publish(100) == pytest.approx(2)


def test_lost_time_is_made_up_for():
    clock = Clock(Pace(50, [], now=0.0))
    clock.publish(50)
    clock.now += 1
    assert clock.publish(50) == pytest.approx(0)
    assert clock.publish(50) == pytest.approx(1)


def test_a_held_publisher_goes_slowly_until_it_is_released():
    pace = Pace(100, [100, 200], now=0.0)
    clock = Clock(pace)
    assert clock.publish(99) == pytest.approx(0.99)
    assert clock.publish(50) == pytest.approx(50 * SLOWER / 100)
    pace.release()
    assert clock.publish(50) == pytest.approx(0.5), "it does not make up for a hold"
    assert clock.publish(50) == pytest.approx(50 * SLOWER / 100)


def test_a_publisher_that_is_released_before_its_hold_is_not_held():
    pace = Pace(100, [10], now=0.0)
    pace.release()
    assert Clock(pace).publish(100) == pytest.approx(1)


def test_lost_time_does_not_carry_a_publisher_far_beyond_its_hold():
    clock = Clock(Pace(100, [10], now=-60.0))
    assert clock.publish(60 * 100 // int(SLOWER)) == pytest.approx(0)
    clock.publish(10)
    assert clock.publish(10) == pytest.approx(10 * SLOWER / 100)


@pytest.mark.parametrize(("per_s", "slow_s"), [(5, 1.0), (0.5, 2.0)])
def test_a_slow_publisher_is_not_held_to_less_than_a_message_per_second(per_s, slow_s):
    assert Clock(Pace(per_s, [0], now=0.0)).publish(10) == pytest.approx(10 * slow_s)
