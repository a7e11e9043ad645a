"""The administrator, who makes the simulated queue, and changes it: groups, limits, resets."""

import asyncio
import copy
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from partq.coordinator.provision import provision
from partq.core.group.planner import GroupType
from partq.embedded.store_ports import queue_records
from partq.errors import PartqError
from partq.lab.simulate.machine.stored import SimStore
from partq.lab.simulate.oracle.facts import GROUP, IDLE, SECOND
from partq.lab.simulate.processes.brokers import LETTER_QUEUE, LETTER_UID, QUEUE, UID
from partq.lab.simulate.processes.coordinators import KEYS, LETTER_KEYS
from partq.lab.simulate.schedule import Setting

RETRY_S: Final = 0.1
SESSION_BOUNDS: Final = {"maxStateBytes": 1024, "maxSessions": 100}


class _WantedQueue(NamedTuple):
    spec: dict[str, object]
    groups: dict[str, Mapping[str, object]]
    partition_count: int


class Administrator:
    """Writes what is wanted, one wish after the other, as long as it takes."""

    def __init__(self, setting: Setting) -> None:
        self.partition_count = setting.partition_count
        self.limits_spec = {"maxMessageBytes": 1024, "maxUnackedPerFlow": 100}
        self.spec: dict[str, object] = {
            "keylessPolicy": "Random",
            "audit": setting.is_audited,
            "brokers": {"replicas": setting.broker_count},
            "limits": self.limits_spec,
            "rebalance": {
                "delaySeconds": setting.delay_s,
                "maxHandoffSeconds": setting.max_handoff_s,
                "standby": setting.standby,
            },
        }
        common = {
            **({"uid": "first"} if setting.has_uids else {}),
            "start": "Earliest",
            "ack": {
                "timeoutSeconds": setting.ack_timeout_s,
                "tickSeconds": 0.05,
                "backoff": None,
                "maxRedeliveries": setting.max_redeliveries if setting.has_letters else None,
                "onExhausted": setting.on_exhausted,
                "maxSpan": setting.max_span,
            },
            "nack": {
                "order": setting.nack_order,
                "delaySeconds": setting.nack_s,
                "backoff": None,
                "maxParkedKeys": setting.max_parked_keys,
            },
            "deadLetter": {
                "queue": LETTER_QUEUE,
                "expired": setting.has_letters and setting.takes_expired,
            },
        }
        self.groups: dict[str, Mapping[str, object]] = {
            GROUP: {
                "type": setting.group_type,
                "assignment": "Client" if setting.is_client_assigned else "Server",
                **(
                    {"keyShared": {"parts": setting.parts, "hashRange": setting.hash_range}}
                    if setting.group_type is GroupType.KEY_SHARED
                    else {}
                ),
                **(
                    {"session": {"lockSeconds": setting.lock_s, **SESSION_BOUNDS}}
                    if setting.group_type is GroupType.SESSION
                    else {}
                ),
                **common,
            }
        }
        if setting.has_second:
            self.groups[SECOND] = {"type": "Partitioned", **common}
        if setting.has_idle:
            self.groups[IDLE] = {"type": "Partitioned", **common}
        self.limits = dict.fromkeys(
            self.groups, setting.max_redeliveries if setting.has_letters else None
        )
        """How often a message of each group is delivered again at most."""
        self._has_letters = setting.has_letters
        self._wishes: deque[_WantedQueue] = deque()
        self._wake = asyncio.Event()

    def wish(self) -> None:
        """Have the queue made as it is described now; every wish comes true in its turn."""
        self._wishes.append(
            _WantedQueue(copy.deepcopy(self.spec), dict(self.groups), self.partition_count)
        )
        self._wake.set()

    @property
    def is_done(self) -> bool:
        """Whether every wish has come true."""
        return not self._wishes

    async def run(self) -> None:
        """Do so until cancelled."""
        store = await SimStore.wait_for()
        if self._has_letters:
            await provision(
                queue_records(store, LETTER_KEYS),
                name=LETTER_QUEUE,
                uid=LETTER_UID,
                partition_count=1,
                spec={**self.spec, "audit": False, "brokers": {"replicas": 1}},
                groups={},
                keeps_others=False,
                repairs=False,
            )
        records = queue_records(store, KEYS)
        is_first = True
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wishes:
                wish = self._wishes[0]
                with suppress(PartqError):
                    await provision(
                        records,
                        name=QUEUE,
                        uid=UID,
                        partition_count=wish.partition_count,
                        spec=wish.spec,
                        groups=wish.groups,
                        keeps_others=False,
                        repairs=not is_first,
                    )
                    self._wishes.popleft()
                    is_first = False
                    continue
                await asyncio.sleep(RETRY_S)
