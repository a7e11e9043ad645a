"""Die before and after every store call; a fresh process continues from there.

Each operation runs in a process of its own that ends at the chosen point, as after kill -9. Then
the operation is repeated, as a fresh process does, and what is stored must be what one undisturbed
run stores. Run as a program, this file is the process that forks those that die (a fork of a
process with pytest's threads would be unsafe, and a new interpreter for each slow).
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.core.group.records import HandoffRecord, NodeRecord
from partq.core.layout import Layout
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.part_owners import PartMove
from partq.core.rescale.layout_steps import prepare
from partq.errors import FencedError
from partq.store.connection import Store
from partq.store.fail_point import EXIT_STATUS, FailPoint
from partq.store.key_states import KeyStates
from partq.store.keys import Keys
from partq.store.lua import load_scripts
from partq.store.message_ids import IdRecords
from partq.store.records import groups
from partq.store.records.audit import Audits, Numbered
from partq.store.records.configs import Configs
from partq.store.records.dead_letters import Outboxes, Replays
from partq.store.records.events import Events
from partq.store.records.handoffs import Handoffs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.store.records.leases import Leases
from partq.store.records.lives import Lives
from partq.store.records.log import AppendBatch, Log
from partq.store.records.members import Members
from partq.store.records.part_records import PartRecords
from partq.store.records.partitions import Partitions
from partq.store.records.pins import Pins
from partq.store.schedule.due_entries import DueEntries
from partq.store.schedule.entry_moves import EntryMoves, Gift, WaitingEntry
from partq.store.schedule.scheduled_entries import ScheduledEntries
from partq.store.session_locks import LockRecords
from partq.wire.audit import encode_record

P = PartitionId(1, 0)
Q = PartitionId(2, 1)
GROUP = "workers"
EPOCH = 2**52
"""Broker epoch, epoch and attempt of the prepared records: above every clock, so that what is drawn
from them is known beforehand."""

BORN = 1
BIND = {"born": BORN, "member": "m-0", "incarnation": "x", "broker_epoch": EPOCH}
"""When the group began."""

LEAVING = (b"1.0/5", b"9 0000000000000007 0 12345")
RECORDS = [encode_record("ack", group=GROUP, first=0, stop=5), encode_record("lapse")]


def next_number():
    """Return the number of a write of a book: later than all before, in whichever process."""
    return time.monotonic_ns() // 1000


def own_write():
    return {"broker_epoch": EPOCH, "born": BORN, "number": next_number()}


class Stores:
    """Everything that a process has of the store."""

    def __init__(self, store):
        keys = Keys(store.prefix, "ns", "orders", "0f3a9c1e")
        self.store, self.keys = store, keys
        self.partitions = Partitions(store, keys)
        self.part_records, self.locks = PartRecords(store, keys), LockRecords(store, keys)
        self.log, self.pins = Log(store, keys), Pins(store, keys)
        self.ids = IdRecords(store, keys)
        self.leases, self.lives = Leases(store, keys), Lives(store, keys)
        self.outboxes, self.replays = Outboxes(store, keys), Replays(store, keys)
        self.layouts, self.seals = Layouts(store, keys), Seals(store, keys)
        self.key_states, self.plans = KeyStates(store, keys), Layouts(store, keys)
        self.configs, self.members = Configs(store, keys), Members(store, keys)
        self.handoffs, self.events = Handoffs(store, keys), Events(store, keys)
        self.audits, self.terms = Audits(store, keys), groups.Terms(store, keys)
        self.moves = EntryMoves(store, keys)
        self.scheduled = ScheduledEntries(store, keys)

    async def prepare(self):
        """A partition with ten messages, owned by b-0, whose group is with m-0."""
        await self.configs.write_group(GROUP, {}, resource_generation=1)
        await self.partitions.create(P)
        await self.partitions.add_group(P, GROUP, start="Earliest")
        await self.store.run("write_fields", [self.keys.cursor(P, GROUP)], [1, "born", BORN])
        await self.store.read("HSET", self.keys.meta(P), "broker_epoch", EPOCH, "owner", "b-0")
        await self.store.read("HSET", self.keys.meta(P), "scheduled_number", EPOCH)
        await self.switch_audit(is_on=True)
        for number in range(2):
            await self.append(number)
        await self.store.read("HSET", self.keys.cursor(P, GROUP), "member", "m-0", "epoch", EPOCH)
        await self.flush(7)
        await self.store.read("HSET", self.keys.handoffs(GROUP), "last_attempt", EPOCH)
        await self.store.read("HSET", self.keys.group_config(GROUP), "coordinator_term", EPOCH)

    async def append(self, number, **more):
        await self.log.append(
            P,
            broker_epoch=EPOCH,
            number=number,
            expected=5 * number,
            batches=[AppendBatch("p", 5 * number, 5, b"12345", **more)],
            room_bytes=None,
        )

    async def flush(self, cursor):
        await self.partitions.flush(
            P,
            GROUP,
            number=next_number(),
            born=BORN,
            broker_epoch=EPOCH,
            cursor=cursor,
            acked=[],
            redeliveries={},
            audit=Numbered(cursor, RECORDS),
        )

    async def switch_audit(self, *, is_on):
        await self.audits.switch(
            P, BrokerId("b-0"), broker_epoch=EPOCH, number=int(not is_on), is_on=is_on
        )

    async def commit(self, target="m-1"):
        await self.partitions.commit(
            P,
            GROUP,
            number=next_number(),
            born=BORN,
            broker_epoch=EPOCH,
            source="m-0",
            epoch=EPOCH,
            attempt=EPOCH + 1,
            target=target,
            cause=0,
            cursor=7,
            acked=[(8, 9)] if target else [],
            redeliveries={},
        )

    async def commit_parts(self):
        names = {"broker_epoch": EPOCH, "born": BORN, "count": 4, "epoch": EPOCH}
        await self.part_records.commit_parts(P, GROUP, moves=[PartMove(3, None, 2, "m-1")], **names)

    async def lock_session(self):
        names = {"session": "s", "member": "m-1", "incarnation": "i", "lock_ms": 2**40}
        await self.locks.lock(P, GROUP, write=own_write(), **names)

    async def unlock_session(self):
        await self.lock_session()
        await self.locks.unlock(P, GROUP, write=own_write(), session="s", number=2**60)

    async def vacate_and_register(self):
        """What is registered is at nobody before."""
        await self.commit(target=None)
        process = {"member": MemberId("m-1"), "incarnation": "x"}
        await self.partitions.register(
            P, GROUP, **own_write(), **process, epoch=EPOCH + 1, offset=3
        )

    async def list_and_number(self):
        """What has a number is listed."""
        await self.members.list_member(GROUP, MemberId("m-9"), "10.0.0.9")
        await self.members.set_node(GROUP, MemberId("m-9"), "x", NodeRecord(3, 1))

    async def reset(self):
        """What a broker does whose reset has no answer: it reads the record, and moves it again."""
        epoch = (await self.partitions.read_cursor(P, GROUP)).epoch
        await self.partitions.reset(
            P, GROUP, number=next_number(), born=BORN, broker_epoch=EPOCH, epoch=epoch, offset=3
        )

    async def create_queue(self):
        await self.layouts.create_queue({1: 2})

    async def change_layout(self):
        """What a coordinator does: it repeats the step that it has decided."""
        await self.create_queue()
        await self.plans.write(prepare(Layout.first(2), 3))

    async def make_successor(self):
        """A partition that waits for the seal of P; it has the group, whose gate is closed."""
        await self.seals.create_successor(Q, {P: [range(9, 65_536)]}, [range(9, 65_536)])
        await self.partitions.add_group(Q, GROUP, start="Earliest")
        await self.store.run("write_fields", [self.keys.cursor(Q, GROUP)], [1, "born", BORN])
        await self.store.read("HSET", self.keys.meta(Q), "broker_epoch", EPOCH, "owner", "b-0")

    async def open_partition(self):
        await self.make_successor()
        await self.seals.open_partition(Q, broker_epoch=EPOCH, seals={P: 10})

    async def open_gate(self):
        await self.make_successor()
        await self.seals.open_gate(
            Q, GROUP, broker_epoch=EPOCH, born=BORN, gate="0", passed={P: (10, 3)}
        )

    async def carry_states(self):
        await self.make_successor()
        call = {"broker_epoch": EPOCH, "born": BORN, "gate": "0", "is_first": True}
        await self.key_states.carry(Q, GROUP, {"k": b"s"}, **call)

    async def pin_and_remove(self):
        """What is removed is a pin that was set."""
        await self.pins.set(P, "reader", 3, broker_epoch=EPOCH)
        await self.pins.remove(P, "reader", broker_epoch=EPOCH)

    async def claim(self):
        """What a broker does whose claim has no answer: it reads, and claims what it sees."""
        expected = (await self.partitions.read(P)).broker_epoch
        await self.partitions.claim(P, BrokerId("b-1"), "i-1", expected=expected)

    async def yield_(self):
        with suppress(FencedError):  # after a repeat: not ours any more, as wanted
            await self.partitions.yield_(P, broker_epoch=EPOCH, successor=BrokerId("b-1"))

    async def park(self):
        await self.append(2, kind="schedule", due_ms=2**53)

    async def park_and_seal(self):
        """What waits in P goes to Q."""
        await self.park()
        for field, value in (("seal:2", 10), ("given_number", EPOCH)):
            await self.store.read("HSETNX", self.keys.meta(P), field, value)

    async def give(self):
        await self.park_and_seal()
        entry = WaitingEntry(EPOCH + 1, 2**53, b"12345")
        await self.moves.give(P, Q, [Gift(entry, b"", b"")])

    async def give_and_forget(self):
        await self.give()
        await self.moves.forget(P, [b"2.1/%d" % (EPOCH + 1)])

    async def park_and_cancel(self):
        """What is removed is what was parked."""
        await self.park()
        await self.scheduled.cancel(P, [EPOCH + 1], broker_epoch=EPOCH)

    async def renew(self):
        await self.leases.renew("b-0", "i-0", 3.0, "http://b-0")

    async def renew_and_release(self):
        """What a process releases is what it has renewed itself."""
        await self.renew()
        await self.leases.release("b-0", "i-0")

    async def add_dead_letter(self):
        letters = [(8, DeadLetterReason.MAX_REDELIVERIES, 3)]
        return await self.outboxes.add(P, GROUP, **own_write(), letters=letters)

    async def add_and_remove_dead_letter(self):
        """What is taken out is what was put in."""
        (letter,) = await self.add_dead_letter()
        await self.outboxes.remove(
            P, GROUP, number=next_number(), born=BORN, broker_epoch=EPOCH, letter=letter.number
        )

    async def register_and_release(self):
        """What is given up is a life that was registered."""
        await self.lives.register("0f3a9c1e")
        await self.lives.release("0f3a9c1e", keeps_data=False)

    async def erase_group(self):
        """What is erased is the group whose spec was read."""
        found = await self.configs.read_group(GROUP)
        await groups.erase(self.store, self.keys, GROUP, born=found.born if found else 0)


@dataclass(frozen=True)
class Case:
    """One operation, and what its repeat by a fresh process may change."""

    act: Callable[[Any], Awaitable[object]]
    draws_again: bool = False
    """The repeat draws a higher epoch or attempt than the call that died after it."""
    first: Callable[[Any], Awaitable[object]] | None = None
    """The step of `act` that goes through before the call at which the process dies."""


CASES = {
    "adopt_ids": Case(lambda to: to.ids.adopt(P, {"0a" * 16: 5}, broker_epoch=EPOCH)),
    "forget_ids": Case(lambda to: to.ids.forget(P, broker_epoch=EPOCH, window_ms=20_000)),
    "add_event": Case(lambda to: to.events.add("bound", epoch=1)),
    "erase_partition": Case(lambda to: to.seals.erase(P)),
    "erase_group": Case(lambda to: to.erase_group()),
    "fence_groups": Case(lambda to: to.partitions.fence_groups(P)),
    "add_group": Case(lambda to: to.partitions.add_group(P, "second", start="Latest")),
    "add_dead_letters": Case(lambda to: to.add_dead_letter()),
    "advance_replay": Case(lambda to: to.replays.advance(P, broker_epoch=EPOCH, write=1, begin=8)),
    "affirm_partition": Case(lambda to: to.partitions.affirm({P: EPOCH})),
    "append_batches": Case(lambda to: to.append(2)),
    "commit_parts": Case(lambda to: to.commit_parts()),
    "lock_session": Case(lambda to: to.lock_session(), draws_again=True),
    "unlock_session": Case(lambda to: to.unlock_session(), first=lambda to: to.lock_session()),
    "bind_member": Case(
        lambda to: to.partitions.bind(P, GROUP, number=next_number(), **BIND), draws_again=True
    ),
    "change_layout": Case(lambda to: to.change_layout(), first=lambda to: to.create_queue()),
    "cancel_scheduled": Case(lambda to: to.park_and_cancel(), first=lambda to: to.park()),
    "read_scheduled": Case(lambda to: to.scheduled.read(P, max_entries=9, max_bytes=9)),
    "claim_partition": Case(lambda to: to.claim(), draws_again=True),
    "commit_handoff": Case(lambda to: to.commit()),
    "create_partition": Case(lambda to: to.partitions.create(PartitionId(1, 1))),
    "create_queue": Case(lambda to: to.layouts.create_queue({1: 16})),
    "draw_attempt": Case(lambda to: to.handoffs.draw_attempt(GROUP), draws_again=True),
    "begin_group": Case(lambda to: to.configs.begin_group("another"), draws_again=True),
    "begin_term": Case(lambda to: to.terms.begin(GROUP), draws_again=True),
    "find_bytes": Case(lambda to: to.log.read_within(P, 3, 9, max_bytes=9, max_entries=9)),
    "find_time": Case(lambda to: to.log.find_time(P, 0)),
    "flush_cursor": Case(lambda to: to.flush(8)),
    "carry_states": Case(lambda to: to.carry_states(), first=lambda to: to.make_successor()),
    "remove_states": Case(lambda to: to.key_states.remove_moved(P, GROUP, ["k"], generation=2)),
    "keep_field": Case(lambda to: to.leases.peer_token("drawn")),
    "mark_lost": Case(lambda to: to.members.mark_lost(GROUP, "m-0")),
    "read_positions": Case(lambda to: to.log.read_positions(P, [3], broker_epoch=EPOCH)),
    "read_waiting": Case(lambda to: to.moves.read(P, None, max_entries=1, max_bytes=1)),
    "give_entries": Case(lambda to: to.give(), first=lambda to: to.park_and_seal()),
    "adopt_entries": Case(lambda to: to.moves.adopt(P, Q, [LEAVING], broker_epoch=EPOCH)),
    "forget_given": Case(lambda to: to.give_and_forget(), first=lambda to: to.give()),
    "complete_carrying": Case(lambda to: to.moves.complete(P, broker_epoch=EPOCH)),
    "read_due": Case(lambda to: DueEntries(to.store, to.keys).read(P, max_entries=1, max_bytes=1)),
    "read_times": Case(lambda to: to.log.read_times(P, [3])),
    "register_member": Case(
        lambda to: to.vacate_and_register(), first=lambda to: to.commit(target=None)
    ),
    "register_node": Case(
        lambda to: to.list_and_number(),
        first=lambda to: to.members.list_member(GROUP, MemberId("m-9"), "10.0.0.9"),
    ),
    "register_life": Case(lambda to: to.lives.register("0f3a9c1e")),
    "release_life": Case(
        lambda to: to.register_and_release(), first=lambda to: to.lives.register("0f3a9c1e")
    ),
    "release_lease": Case(lambda to: to.renew_and_release(), first=lambda to: to.renew()),
    "end_reset": Case(lambda to: to.seals.end_reset(P, GROUP, "1-r7@2")),
    "open_gate": Case(lambda to: to.open_gate(), first=lambda to: to.make_successor()),
    "open_partition": Case(lambda to: to.open_partition(), first=lambda to: to.make_successor()),
    "seal_slots": Case(
        lambda to: to.seals.seal(P, broker_epoch=EPOCH, generation=2, slots=[range(9)])
    ),
    "remove_dead_letter": Case(
        lambda to: to.add_and_remove_dead_letter(), first=lambda to: to.add_dead_letter()
    ),
    "remove_pin": Case(
        lambda to: to.pin_and_remove(),
        first=lambda to: to.pins.set(P, "reader", 3, broker_epoch=EPOCH),
    ),
    "remove_group": Case(lambda to: to.partitions.remove_group(P, GROUP, born=BORN)),
    "renew_lease": Case(lambda to: to.renew()),
    "reset_cursor": Case(lambda to: to.reset(), draws_again=True),
    "set_pin": Case(lambda to: to.pins.set(P, "reader", 3, broker_epoch=EPOCH)),
    "switch_audit": Case(lambda to: to.switch_audit(is_on=False)),
    "trim_audit": Case(lambda to: to.audits.trim(P, 3, broker_epoch=EPOCH)),
    "trim_log": Case(lambda to: to.log.trim(P, broker_epoch=EPOCH)),
    "unlink_keys": Case(lambda to: to.store.run("unlink_keys", to.keys.of_group(GROUP))),
    "write_usage": Case(lambda to: to.leases.write_usage(1, 5)),
    "write_config": Case(lambda to: to.configs.write_queue({}, resource_generation=1)),
    "write_fields": Case(
        lambda to: to.handoffs.record(
            GROUP, P, HandoffRecord(None, MemberId("m-1"), 1, "Draining", 0)
        )
    ),
    "write_audit": Case(
        lambda to: to.audits.write(P, broker_epoch=EPOCH, audit=Numbered(7, RECORDS)),
    ),
    "yield_partition": Case(lambda to: to.yield_()),
}


def without_draws(value):
    """Leave out the numbers that were drawn above the prepared ones."""
    return re.sub(r"\b4503599627370\d{3}\b", "(drawn)", repr(value))


def without_audit(state):
    """Leave out the audit record, which tells of every draw."""
    return {
        name: {key: value for key, value in found.items() if not key.startswith(b"audit")}
        if isinstance(found, dict)
        else found
        for name, found in state.items()
        if not name.endswith(":audit")
    }


# ---- the process that forks those that die ------------------------------------------------------


async def act(url, prefix, operation, fail_point):
    """Carry out one operation in this process."""
    store = await Store.open(url, prefix=prefix, fail_point=fail_point, timeout_s=60.0)
    await CASES[operation].act(Stores(store))
    await store.close()


def serve():
    """Fork a process for each line on stdin, and write how it ended."""
    for line in sys.stdin:
        url, prefix, phase, operation = json.loads(line)
        child = os.fork()
        if not child:
            asyncio.run(act(url, prefix, operation, FailPoint(phase, operation, 1)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 # the answer


# ---- the tests ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def die():
    """Carry out an operation in a process that ends at the fail point; return its status."""
    program = [sys.executable, str(Path(__file__))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forker:

        def die(*line):
            forker.stdin.write(json.dumps(line).encode() + b"\n")
            forker.stdin.flush()
            return int(forker.stdout.readline())

        yield die
        forker.stdin.close()
        forker.wait(10)


def test_every_script_has_its_case():
    assert set(CASES) == set(load_scripts((7,)))


@pytest.mark.parametrize("operation", CASES)
async def test_a_fresh_process_goes_on(redis_server, key_prefix, die, operation, read_state):
    case = CASES[operation]
    async with AsyncExitStack() as stack:
        stores = {}
        for name in ("undisturbed", "before", "after"):
            store = await Store.open(redis_server.url, prefix=f"{key_prefix}{name}", timeout_s=60.0)
            stack.push_async_callback(store.close)
            stores[name] = Stores(store)
            await stores[name].prepare()
        undisturbed = stores["undisturbed"]
        if case.first is not None:
            await case.first(undisturbed)
        left_behind = {"before": await read_state(undisturbed.store)}
        await case.act(undisturbed)
        done = left_behind["after"] = await read_state(undisturbed.store)

        for phase in ("before", "after"):
            fresh = stores[phase]
            assert die(redis_server.url, fresh.store.prefix, phase, operation) == EXIT_STATUS
            assert await read_state(fresh.store) == left_behind[phase]
            await case.act(fresh)
            again = await read_state(fresh.store)
            if case.draws_again:
                assert without_draws(without_audit(again)) == without_draws(without_audit(done))
            elif case.first is not None:  # that is done again, too, and told again
                assert without_audit(again) == without_audit(done)
            else:
                assert again == done


def test_only_the_chosen_call_counts():
    point = FailPoint("before", "draw_attempt", 3)
    for phase, operation in [("before", "trim_log"), ("after", "draw_attempt")] * 5:
        point.hit(phase, operation)
    point.hit("before", "draw_attempt")
    point.hit("before", "draw_attempt")  # a third one would end this very process


if __name__ == "__main__":
    serve()
