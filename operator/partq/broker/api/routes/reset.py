"""The admin call that moves a group's cursors, over HTTP: token, body, call, answer."""

import secrets
from collections.abc import Sequence
from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.reset import check, reset
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.resets import by_generation, new_reset_id
from partq.errors import ConflictError, UnknownPartitionError
from partq.wire.calls.answers import UNSET, ResetResult, ResetResults
from partq.wire.calls.bodies import ResetBody
from partq.wire.calls.replies import error_detail

MAX_TRIES = 3
"""How often a reset of all partitions begins again, because their count is changed meanwhile."""

calls = Calls("reset")

Results = dict[PartitionId, ResetResult]


@calls.add(
    "POST",
    "/v1/queues/{queue}/groups/{group}/reset",
    roles=ADMINS,
    body=ResetBody,
    answers={200: ResetResults},
    errors=(UnknownPartitionError,),
)
async def reset_group(call: EnteredCall, body: ResetBody) -> web.Response:
    """Move a group's cursors, or show what would change; each partition is judged on its own."""
    partitions = named(call, body.partitions)
    named(call, list(body.epochs or {}))
    check(body, len(partitions))
    layout = call.broker.config.layout
    is_whole = layout.generation > 1 and set(partitions) == set(layout.partitions())
    if is_whole and not (body.is_dry_run or body.reset):
        answers = await _reset_all(call, body)
    else:
        answers = await _reset_some(call, partitions, body)
    return json_response(ResetResults(by_name(answers)))


async def _reset_some(
    call: EnteredCall, partitions: Sequence[PartitionId], body: ResetBody
) -> Results:
    work = partial(reset, call.broker, group=call.group, body=body)
    return await ask_owners(call, partitions, work, body, ResetResult)


async def _reset_all(call: EnteredCall, body: ResetBody) -> Results:
    """Move the cursors in all partitions of a queue whose partition count has been changed.

    If it is changed again meanwhile, all partitions are reset again, by the new layout.
    """
    broker = call.broker
    epochs = dict(body.epochs or {})
    answers: Results = {}
    for _ in range(MAX_TRIES):
        layout = broker.config.layout
        answers = await _reset_by(layout, call, body)
        failed = [each for each, answer in answers.items() if answer.error is not UNSET]
        if not failed:
            break
        await broker.refresh()
        if broker.config.layout.generation == layout.generation:
            break
        # What was moved has another epoch by now.
        moved = {str(p): each.epoch for p, each in answers.items() if each.epoch is not UNSET}
        body.epochs = {**epochs, **moved} or UNSET
    return answers


async def _reset_by(layout: Layout, call: EnteredCall, body: ResetBody) -> Results:
    """Move the cursors in all partitions of a layout, in the ones that follow others first.

    These deliver nothing until the others are reset, too: else messages of a key would be repeated
    before older ones.
    """
    clocks_ms = await call.broker.store.read_clocks()
    body.reset = new_reset_id(min(clocks_ms.values()), secrets.token_hex(4), layout.generation)
    answers: Results = {}
    for partitions in reversed(by_generation(layout.partitions())):
        due = []
        for partition in partitions:
            left = _unmoved_successor(layout, partition, answers)
            if left is None:
                due.append(partition)
            else:
                answers[partition] = ResetResult(error=error_detail(_not_moved(partition, left)))
        answers |= await _reset_some(call, due, body)
    return {partition: answers[partition] for partition in layout.partitions()}


def _unmoved_successor(
    layout: Layout, partition: PartitionId, answers: Results
) -> PartitionId | None:
    """Return a partition that follows this one and was not moved; None: all were."""
    return next(
        (
            successor
            for successor, givers in sorted(layout.lineage.items())
            if partition in givers and answers[successor].error is not UNSET
        ),
        None,
    )


def _not_moved(partition: PartitionId, successor: PartitionId) -> ConflictError:
    return ConflictError(
        f"partition {partition}: not moved, as partition {successor}, which follows it, was not; "
        "its messages would be delivered between older ones: repeat the reset of all partitions"
    )
