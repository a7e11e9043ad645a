"""Mistakes in groups whose members choose their partitions."""

from partq.broker.operations.assignment import registration
from partq.core.group import planner
from partq.core.group.membership import OwnershipState
from partq.core.group.planner import GroupType
from partq.lab.simulate.processes import brokers
from tests.lab.simulate.mutation import DRAWN, Mutation, both, code, lua, text

CHOOSING = {"is_client_assigned": True, "group_type": GroupType.PARTITIONED, "pod_count": 3}
FREE_AT_HAND = ("if consumed.member is None:", "if True:")
"""The broker, too, takes what others hold for free."""


def _give_what_is_free(self):
    """Plan as in a group that the coordinator assigns, for what nobody has."""
    states = self._assessment.partitions
    bound = sorted(m for m, brokers in self._assessment.bound_at.items() if brokers)
    free = [p for p in self._homeless if states[p] is OwnershipState.VACANT]
    return [self._move(p, bound[0]) for p in free if bound]


CHOOSING_MUTATIONS = (
    Mutation(
        "a partition that another member holds is registered",
        both(
            lua("register_member", ('elseif member ~= "" then', "elseif false then")),
            text(brokers, "register", FREE_AT_HAND),
            text(registration, "_take", ("body.epoch != consumed.epoch", "False")),
            lua("register_member", ("known ~= ARGV[5]", "false")),
        ),
        frozenset({"client", "E2", "G6"}),
        frozenset({"pod_start"}),
        CHOOSING,
    ),
    Mutation(
        "a registration draws no epoch",
        lua("register_member", (DRAWN, 'tonumber(last or "0")')),
        frozenset({"E2", "E3", "S1"}),
        frozenset({"pod_start"}),
        CHOOSING,
    ),
    Mutation(
        "a coordinator gives away what nobody has chosen",
        code(planner._PlanBuilder, "plan", _give_what_is_free),
        frozenset({"client"}),
        frozenset({"pod_crash"}),
        CHOOSING | {"has_second": False},
    ),
)
