"""By which rules the oracle judges a simulated cluster: as the setting has them."""

import random
from collections.abc import Mapping
from typing import Final

from partq.core.group.planner import GroupType
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.oracle.facts import GROUP
from partq.lab.simulate.oracle.keys.session_deliveries import SessionDeliveries
from partq.lab.simulate.oracle.keys.turn_deliveries import TurnDeliveries
from partq.lab.simulate.oracle.oracle import Oracle
from partq.lab.simulate.schedule import WIDE, Setting

KEY_COUNT: Final = 6
"""How many keys messages have."""
MAX_BATCH_COUNT: Final = 3
"""Messages of one batch."""


def make_oracle(loop: SimLoop, rng: random.Random, setting: Setting) -> Oracle:
    """Return the oracle of a cluster."""
    watcher = Oracle(loop, hostile=rng)
    if setting.group_type is GroupType.SESSION:
        watcher.shared = SessionDeliveries(
            watcher.contents, watcher.isolation, watcher.fail, loop.time
        )
    if setting.group_type is GroupType.SHARED:
        watcher.shared = TurnDeliveries.like(watcher.shared, setting.priority_of)
    return watcher


def set_judges(watcher: Oracle, setting: Setting, limits: Mapping[str, int | None]) -> None:
    """Have an oracle that follows the records judge by a setting.

    `limits`: of each group, how often a message of it is delivered again at most.
    """
    records = watcher.records
    watcher.contents.is_audited = setting.is_audited
    watcher.is_free = watcher.answers.is_free = setting.nack_order == "Free"
    watcher.isolates_keys = (
        setting.nack_order == "Key"
        and setting.max_parked_keys >= KEY_COUNT
        and setting.max_span == WIDE
    )
    keyed = watcher.keyed
    keyed.is_on, keyed.is_audited = setting.nack_order == "Key", setting.is_audited
    keyed.nack_s = setting.nack_s
    shared = watcher.shared
    types = (GroupType.KEY_SHARED, GroupType.SHARED, GroupType.SESSION)
    shared.is_on = setting.group_type in types
    # Nobody need ask for a session that has messages.
    is_sent = setting.group_type is not GroupType.SESSION
    shared.liveness.is_on = is_sent and setting.max_parked_keys >= KEY_COUNT
    shared.liveness.nack_s = setting.nack_s
    watcher.isolation.is_narrow = setting.max_span < WIDE
    keyed.ack_timeout_s = shared.ack_timeout_s = setting.ack_timeout_s
    keyed.max_span = shared.max_span = setting.max_span
    if setting.group_type is GroupType.SESSION:
        shared.max_span += MAX_BATCH_COUNT - 1  # sessions are found by reading a batch to its end
    held = records.held_keys
    held.is_on = setting.has_letters and setting.on_exhausted != "Skip"
    held.limits = limits
    held.makes_letters = setting.on_exhausted == "Quarantine"
    if setting.is_client_assigned:
        records.client_assigned = frozenset({GROUP})
    records.keeps_expired = setting.has_letters and setting.takes_expired
