"""Sessions for code that is not asynchronous: accepted, iterated over, closed; and interrupted."""

import pytest

from partq import NoSessionError
from partq.sync import Producer, SessionConsumer
from partq.testing.local_broker import LocalBroker


@pytest.fixture
def broker():
    with LocalBroker(partitions=1, groups={"clerks": {"type": "Session"}}) as broker:
        yield broker


def test_sessions_are_taken_one_after_another_with_their_states(broker):
    with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for key in ("a", "b", "a"):
            producer.send_and_wait(key.encode(), key=key)
    place = {"queue": "orders", "group": "clerks", "token": broker.tokens.consume}
    with SessionConsumer(broker.url, **place, idle_s=0.2) as clerks:
        found = {}
        for session in clerks:
            with session:
                for message in session:
                    count = int(session.state() or b"0") + 1
                    session.ack(message, state=str(count).encode(), confirmed=True)
                found[session.session_id] = session.state()
            if len(found) == 2:
                break
        assert found == {"a": b"2", "b": b"1"}
        with pytest.raises(NoSessionError):
            clerks.accept(timeout_s=0)
        with clerks.accept("a") as session:
            assert (session.state(), session.is_closed, clerks.sessions[0].lock) == (
                b"2",
                False,
                session.lock,
            )
            session.renew()
        assert session.is_closed
        clerks.leave()
        assert list(clerks) == []
