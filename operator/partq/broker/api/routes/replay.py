"""Replaying and dropping dead letters over HTTP: token, body, call, answer."""

from collections.abc import Sequence
from functools import partial

from aiohttp import web

from partq.broker.api.endpoints import ADMINS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.broker.api.owner_calls import ask_owners, by_name, named
from partq.broker.operations.replay import drop, replay
from partq.core.model import PartitionId
from partq.core.rescale.resets import by_generation
from partq.errors import ConflictError, UnknownPartitionError
from partq.wire.calls.answers import UNSET
from partq.wire.calls.dead_letters import (
    DropBody,
    DropResult,
    DropResults,
    ReplayBody,
    ReplayResult,
    ReplayResults,
)
from partq.wire.calls.replies import error_detail

calls = Calls("replay")
PREFIX = "/v1/queues/{queue}/dead-letters"


@calls.add(
    "POST",
    PREFIX + "/replay",
    roles=ADMINS,
    body=ReplayBody,
    answers={200: ReplayResults},
    errors=(UnknownPartitionError,),
)
async def replay_letters(call: EnteredCall, body: ReplayBody) -> web.Response:
    """Send dead letters back to where they came from; each partition is judged on its own."""
    partitions = named(call, body.partitions)
    named(call, list(body.offsets))
    answers = await _replay_in_order(call, partitions, body)
    return json_response(ReplayResults(by_name(answers)))


async def _replay_in_order(
    call: EnteredCall, partitions: Sequence[PartitionId], body: ReplayBody
) -> dict[PartitionId, ReplayResult]:
    """Replay partitions; one that follows others after those have come to their ends.

    Else dead letters of a key would be sent back before older ones.
    """
    layout = call.broker.config.layout
    work = partial(replay, call.broker, body=body)
    answers: dict[PartitionId, ReplayResult] = {}
    for group in by_generation(partitions):
        due = []
        for partition in group:
            givers = layout.predecessors(partition)
            before = next((p for p in givers if p in answers and not _is_at_end(answers[p])), None)
            if before is None:
                due.append(partition)
            else:
                answers[partition] = ReplayResult(error=error_detail(_too_early(partition, before)))
        answers |= await ask_owners(call, due, work, body, ReplayResult)
    return {partition: answers[partition] for partition in partitions}


def _is_at_end(answer: ReplayResult) -> bool:
    return answer.error is UNSET and answer.stopped is UNSET and answer.next == answer.end


def _too_early(partition: PartitionId, before: PartitionId) -> ConflictError:
    return ConflictError(
        f"partition {partition}: not replayed, as it follows partition {before}, whose dead "
        "letters are older and not all replayed; replay those first, then repeat the call"
    )


@calls.add(
    "POST",
    PREFIX + "/drop",
    roles=ADMINS,
    body=DropBody,
    answers={200: DropResults},
    errors=(UnknownPartitionError,),
)
async def drop_letters(call: EnteredCall, body: DropBody) -> web.Response:
    """Drop dead letters, or show which would be; each partition is judged on its own."""
    partitions = named(call, body.partitions)
    work = partial(drop, call.broker, body=body)
    answers = await ask_owners(call, partitions, work, body, DropResult)
    return json_response(DropResults(by_name(answers)))
