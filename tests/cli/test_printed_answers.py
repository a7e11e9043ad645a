"""What commands print of a broker's answers is what they printed: as JSON, and for people.

What a change is meant to change is recorded again: `RECORD_ANSWERS=1 pytest` with this file.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from partq.cli.commands import cli

GOLDEN = Path(__file__).parent / "printed_answers.txt"
PATH = "/v1/queues/orders"
ERROR = {"code": "unavailable", "message": "nobody serves it", "retry_after_ms": 1000}

STATUS: Any = {
    "queue": "orders", "namespace": "default", "a_newer_field": 1.0,
    "store": {"version": "7.0.15", "appendonly": True, "appendfsync": "always"},
    "availability": "Unavailable", "unavailable": ["1.2"],
    "totals": {"partitions": 3, "messages": 1105, "bytes": 19300, "audit_bytes": 77},
    "partitions": {
        "1.0": {"broker": "orders-0", "broker_epoch": 7, "first": 0, "end": 1000, "bytes": 11800,
                "clock_ahead_ms": 0},
        "1.1": {"broker": "orders-1", "broker_epoch": 8, "first": 2, "end": 107, "bytes": 7500,
                "clock_ahead_ms": 90_000},
        "1.2": {"broker": "", "broker_epoch": 9, "first": 0, "end": 0, "bytes": 0,
                "clock_ahead_ms": 0},
    },
    "groups": {
        "workers": {
            "type": "Partitioned", "lag": 42, "lag_ms": 61_000,
            "members": [{"member": "m", "partitions": 2, "state": "Active"},
                        {"member": "ñ", "partitions": 0, "state": "Standby"}],
            "partitions": {
                "1.0": {"member": "m", "epoch": 5, "state": "Ready", "cursor": 960, "lag": 40,
                        "lag_ms": 61_000, "dead_letters": 0, "blocked": "", "parked": ""},
                "1.1": {"member": "m", "epoch": 6, "state": "Paused", "cursor": 105, "lag": 2,
                        "lag_ms": 5, "dead_letters": 2, "blocked": "no queue of this name",
                        "parked": ""},
                "1.2": {"member": "", "epoch": 7, "state": "Unassigned", "cursor": 0, "lag": 0,
                        "lag_ms": 0, "dead_letters": 1, "blocked": "", "parked": "no such queue"},
            },
            "handoffs": [{"partition": "1.1", "source": "m", "target": "ñ", "attempt": 3,
                          "phase": "Draining"}],
            "waiting_moves": [{"partition": "1.0", "target": "ñ", "limit": "max_paused"}],
        },
        "audit": {
            "type": "Single", "lag": 0, "lag_ms": 0, "members": [], "partitions": {},
            "handoffs": [], "waiting_moves": [],
        },
    },
}  # fmt: skip
OLDER_STATUS = {
    **STATUS,
    "unavailable": [],
    "availability": "Available",
    "totals": {"partitions": 1, "messages": 3, "bytes": 5},
    "partitions": {"1.0": {"broker": "b", "broker_epoch": 7, "first": 0, "end": 3, "bytes": 5}},
    "groups": {
        "g": {
            "type": "Partitioned", "lag": 3, "lag_ms": 1,
            "members": [{"member": "m", "partitions": 1, "state": "Lost"}],
            "partitions": {"1.0": {"member": "m", "epoch": 5, "state": "Unbound", "cursor": 0,
                                   "lag": 3, "lag_ms": 1}},
            "handoffs": [], "waiting_moves": [],
        },
    },
}  # fmt: skip
SOME_STATUS = {**STATUS, "availability": "Limited", "unavailable": ["1.2", "1.3"]}
"""Redis does not answer for the last one of them."""
WAITING_STATUS: Any = {**STATUS, "groups": {}, "partitions": {
    name: {**STATUS["partitions"][name], "scheduled": count, "scheduled_bytes": 1000 * count,
           "next_due_ms": 1_796_126_400_000 + count}
    for name, count in (("1.0", 3), ("1.1", 2))
}}  # fmt: skip
LAYOUT = {
    "queue": "orders", "namespace": "default", "uid": "u", "owners": {"1.0": "orders-0"},
    "generations": [{"generation": 1, "partitions": 4}],
    "brokers": [{"broker": "orders-0", "url": "http://127.0.0.1:1"}],
    "limits": {"max_message_bytes": 4096, "max_unacked_per_flow": 1000},
    "keyless_policy": "Random", "groups": ["workers"],
}  # fmt: skip
PLANNED = {
    "1.0": {"member": "m", "is_bound": False, "cursor": 9, "to": 2, "wanted": 0, "first": 2,
            "end": 12, "epoch": 4},
    "1.1": {"member": "", "is_bound": False, "cursor": 3, "to": 3, "wanted": 3, "first": 0,
            "end": 3, "epoch": 5},
}  # fmt: skip
BOUND = {"1.0": {**PLANNED["1.0"], "is_bound": True}}
REFUSED = {**PLANNED, "1.2": {"error": ERROR}}
OLDER_PLAN = {"1.0": {name: value for name, value in PLANNED["1.0"].items() if name != "epoch"}}
LETTERS = {
    "messages": [
        {"partition": "1.0", "offset": 4, "publish_time_ms": 1, "append_broker_epoch": 7,
         "key": "kü", "value": "v" * 70, "event_time_ms": 0,
         "headers": {"partq-dead-letter-queue": "orders", "partq-dead-letter-group": "workers",
                     "partq-dead-letter-partition": "1.3", "partq-dead-letter-offset": "4711",
                     "partq-dead-letter-position": "1.7.4711", "partq-dead-letter-reason": "nacks",
                     "partq-dead-letter-redeliveries": "3"}},
        {"partition": "1.0", "offset": 5, "publish_time_ms": 2, "append_broker_epoch": 7,
         "key": None, "value_base64": "/w==", "headers": {}, "event_time_ms": 3},
        {"partition": "1.1", "offset": 0, "publish_time_ms": 2, "append_broker_epoch": 7,
         "error": {"code": "undecodable", "message": "checksum"}},
    ],
    "next": {"1.0": 6, "1.1": 1}, "why": "end", "trimmed": {"1.0": 4}, "unavailable": {},
    "missing": {"1.0": [[0, 1], [2, 4]]},
}  # fmt: skip
SCHEDULED: Any = [
    {
        "messages": [
            {"id": f"1.0/{number:016d}", "due_ms": 1_796_126_400_000 + number, "count": number,
             "bytes": 1000 * number, **({"key": "k\n"} if number == 2 else {})}
            for number in numbers
        ],
        **({"next": f"5/1.0/{numbers[-1]:016d}"} if numbers[-1] < 4 else {}),
    }
    for numbers in ((1, 2), (3, 4))
]  # fmt: skip
SCHEDULED_IN_PART = {**SCHEDULED[1], "unavailable": {"1.2": ERROR}}
SCHEDULED_LISTS: Any = (SCHEDULED, [{"messages": []}], [SCHEDULED_IN_PART])
HOLES: Any = {
    **LETTERS,
    "trimmed": {"1.1": 7},
    "missing": {"1.0": [[at, at + 1] for at in range(0, 24, 2)], "1.1": [[9, 90]]},
}
"""More of them than are told."""
MAY_BROWSE: Any = {"error": {"code": "unknown_partition", "message": "there is none of that name"}}
OLDER_LETTERS = {name: value for name, value in LETTERS.items() if name != "missing"}
SOME_LETTERS = {**OLDER_LETTERS, "unavailable": {"1.2": ERROR}}
STOPPED = {"code": "conflict", "message": "the oldest is no dead letter"}
DROPS = {"1.0": {"start": 0, "stop": 3}, "1.1": {"start": 2, "stop": 2}}
STOPPED_DROPS = {**DROPS, "1.2": {"start": 1, "stop": 3, "stopped": STOPPED}}
REPLAYS = {
    "1.0": {"next": 3, "end": 3, "replayed": 2, "repeated": 1, "skipped": 0},
    "1.1": {"next": 1, "end": 5, "replayed": 1, "repeated": 0, "skipped": 0},
}
MORE = {"1.1": {"next": 5, "end": 5, "replayed": 2, "repeated": 0, "skipped": 2,
                "skipped_because": STOPPED}}  # fmt: skip
HALTED = {"1.0": {"next": 1, "end": 2, "replayed": 1, "repeated": 0, "skipped": 1,
                  "stopped": STOPPED}, "1.1": {"error": ERROR}}  # fmt: skip
REMOVAL = {"is_removed": False, "partitions": 4, "lag": 1234, "dead_letters": 2, "groups": []}
RESCALE = {
    "generation": 2, "from_count": 16, "to_count": 24, "phase": "Preparing", "moved_percent": 33.3,
    "started_at_ms": 0, "sealed": 0, "to_seal": 16, "opened": 0, "to_open": 8, "retiring": 0,
    "held": [], "waits_for": ["the coordinator, which begins it"], "hindrance": "", "earlier": [],
}  # fmt: skip
OPENING = {**RESCALE, "phase": "Opening", "sealed": 16, "opened": 3,
           "waits_for": ["the opening of partition 2.19, by its broker"]}  # fmt: skip
DRAINING = {**OPENING, "phase": "Draining", "opened": 8, "retiring": 2, "waits_for": [],
            "held": [{"group": "workers", "partitions": 2, "messages": 1200}]}  # fmt: skip
EARLIER = {"generation": 1, "from_count": 8, "to_count": 16, "phase": "Settled",
           "started_at_ms": 1, "committed_at_ms": 2}  # fmt: skip
RESCALED_STATUS = {
    **OLDER_STATUS,
    "totals": {"partitions": 2, "messages": 6, "bytes": 10},
    "partitions": {"1.0": {"broker": "b", "broker_epoch": 7, "first": 0, "end": 3, "bytes": 5,
                           "is_retired": True},
                   "2.0": {"broker": "b", "broker_epoch": 7, "first": 0, "end": 3, "bytes": 5}},
    "groups": {
        "g": {
            "type": "Partitioned", "lag": 6, "lag_ms": 1,
            "members": [{"member": "m", "partitions": 1, "state": "Active", "retired": 1}],
            "partitions": {
                "1.0": {"member": "m", "epoch": 5, "state": "Ready", "cursor": 0, "lag": 3,
                        "lag_ms": 1},
                "2.0": {"member": "m", "epoch": 5, "state": "Ready", "cursor": 0, "lag": 3,
                        "lag_ms": 1, "gated_by": "3 messages of 1.0"},
            },
            "handoffs": [], "waiting_moves": [],
        },
    },
    "rescale": {**DRAINING, "earlier": [EARLIER]},
}  # fmt: skip
RESCALE_PLAN = {
    "queue": "orders", "namespace": "default", "from_count": 16, "to_count": 24, "generation": 2,
    "moved_percent": 33.3, "created": ["2.16", "2.17"], "retired": [], "most_predecessors": 2,
    "groups": {
        "audit": {"in_flight": 0, "lag": 0, "hold_ms": 0, "moved": 0, "assigned": 0,
                  "members": {}},
        "held": {"in_flight": 0, "lag": 7, "hold_ms": None, "moved": 0, "assigned": 8,
                 "members": {}, "blocked": {"1.0": [11, 22, 33, 44]}},
        "slow": {"in_flight": 1, "lag": 1200, "hold_ms": None, "moved": 1, "assigned": 8,
                 "members": {"m": {"before": 16, "after": 23}, "n": {"before": 0, "after": 1}}},
        "workers": {"in_flight": 120, "lag": 1200, "hold_ms": 240_000, "moved": 0, "assigned": 8,
                    "members": {"m": {"before": 16, "after": 24}}},
    },
    "store_bytes": 3000, "waits_for": [],
    "remarks": ["a remark"], "is_wanted": False, "rescale": RESCALE,
}  # fmt: skip
WANTED = {**RESCALE_PLAN, "is_wanted": True}
HAVING = {**WANTED, "from_count": 24, "created": [], "groups": {}, "remarks": [], "waits_for": [],
          "rescale": DRAINING}  # fmt: skip
ON_KUBERNETES = {**RESCALE_PLAN, "command": "kubectl patch"}
SAYS_KUBECTL = {"error": {"code": "conflict", "message": "change the resource: kubectl patch"}}
GROUP_STATE = {
    "member": "m", "incarnation": "i", "epoch": 5, "attempt": 1, "cursor": 3, "position": 4,
    "in_flight": 1, "lag": 7, "state": "Ready", "is_bound": True, "pause_attempt": 0,
    "dead_letters": 2, "blocked": "", "missing": "", "parked": "", "mended": "",
}  # fmt: skip
PICTURE: dict[str, Any] = {
    "now_ms": 1_000_000,
    "queue_spec": {"partitions": 1, "keylessPolicy": "Random", "brokers": {"replicas": 1}},
    "group_spec": {"queue": "orders", "type": "Partitioned", "strategy": "sticky"},
    "partitions": ["1.0"],
    "members": {"m": {"address": "127.0.0.1", "lost_at_ms": None}}, "heirs": {},
    "refused": {"x": {"address": "127.0.0.2", "reason": "another has its name"}},
    "assignment": {"1.0": {"member": "m", "epoch": 5, "state": "Ready"}}, "handoffs": {},
    "past": {"1.0": [{"at_ms": 5000, "source": None, "target": "m", "evidence": "no_member",
                      "trigger": "join", "forced": "unassigned", "pause_ms": None, "attempt": 1}]},
    "waiting": {},
    "brokers": {
        "orders-0": {"state": {
            "broker": "orders-0", "incarnation": "i",
            "partitions": {"1.0": {"broker_epoch": 7, "held_s": 5.0, "end": 10,
                                   "groups": {"workers": GROUP_STATE}}},
            "flows": [{"group": "workers", "member": "m", "incarnation": "i", "bound_s": 3.0,
                       "address": "127.0.0.1", "flow": 4, "kind": "pull"}],
            "lost_flows": [],
        }},
    },
}  # fmt: skip
SILENT = {**PICTURE, "brokers": {**PICTURE["brokers"], "orders-1": {"error": "timed out"}}}
DROP = ("dead-letters", "drop", "--yes")

Answers = Mapping[str, Sequence[Any]]
"""By call, what is answered in turn; the last one again and again."""


def partitions(rows: object) -> list[Any]:
    return [{"partitions": rows}]


CASES: Sequence[tuple[Any, Answers]] = [
    (("status", "--json"), {"GET /status": [STATUS]}),
    (("status",), {"GET /status": [STATUS]}),
    (("status", "--json"), {"GET /status": [OLDER_STATUS]}),
    (("status",), {"GET /status": [OLDER_STATUS]}),
    (("status",), {"GET /status": [{**STATUS, "totals": {"partitions": "3"}}]}),
    (("status",), {"GET /status": [RESCALED_STATUS]}),
    (("status",), {"GET /status": [WAITING_STATUS]}),
    (("groups", "--json"), {"GET /status": [STATUS]}),
    (("groups",), {"GET /status": [STATUS]}),
    (("groups", "--json"), {"GET /status": [OLDER_STATUS]}),
    (("groups",), {"GET /status": [RESCALED_STATUS]}),
    *(
        (command, {"GET /status": [SOME_STATUS]})
        for command in (("status",), ("groups",), ("groups", "--json"))
    ),
    *(
        (("reset", "--group", "workers", "--to", "earliest", *more), {f"POST {RESET}": answers})
        for RESET in ("/groups/workers/reset",)
        for more, answers in (
            (("--dry-run", "--json"), partitions(PLANNED)),
            (("--dry-run",), partitions(PLANNED)),
            (("--dry-run", "--json"), partitions(BOUND)),
            (("--dry-run", "--json"), partitions(REFUSED)),
            (("--dry-run",), partitions(REFUSED)),
            (("--yes", "--json"), partitions(PLANNED)),
            (("--yes",), partitions(PLANNED)),
            (("--yes",), partitions(BOUND)),
            (("--yes", "--json"), partitions(OLDER_PLAN)),
            (("--dry-run",), partitions({"1.0": {"member": "m", "is_bound": False}})),
            (("--yes", "--json"), partitions(PLANNED) + partitions(REFUSED)),
        )
    ),
    *(
        (("dead-letters", "list", *more), {"POST /browse": [answer]})
        for more in (("--json",), ())
        for answer in (LETTERS, OLDER_LETTERS, SOME_LETTERS)
    ),
    *(
        (
            ("browse", *more),
            {"GET /partitions/0.0/entries": [MAY_BROWSE], "POST /browse": [answer]},
        )
        for more in (("--json",), (), ("--partition", "1.0", "--offset", "0"))
        for answer in (HOLES, OLDER_LETTERS)
    ),
    *(
        (
            ("dead-letters", "replay", "--yes", *more),
            {"GET /layout": [LAYOUT], "POST /dead-letters/replay": answers},
        )
        for more in (("--json",), ())
        for answers in (partitions(REPLAYS) + partitions(MORE), partitions(HALTED))
    ),
    *(
        ((*DROP, *more), {"POST /dead-letters/drop": answers})
        for more in (("--json",), ("--dry-run", "--json"), ())
        for answers in (
            partitions(DROPS),
            partitions(STOPPED_DROPS),
            partitions({**DROPS, "1.3": {"error": ERROR}}),
            [*partitions({"1.0": DROPS["1.0"]}), {"error": ERROR}],
        )
    ),
    *(
        (("scheduled", *more), {"GET /scheduled": pages})
        for more in (
            ("list",),
            ("list", "--limit", "3", "--before", "2026-12-02T00:00:00Z"),
            ("list", "--json", "--limit", "3", "--key", "k"),
        )
        for pages in SCHEDULED_LISTS
    ),
    *(
        (
            ("scheduled", "cancel", "1.0/0000000000000005", *more),
            {"DELETE /scheduled/1.0/0000000000000005": [{"is_cancelled": is_cancelled}]},
        )
        for more in (("--json",), ())
        for is_cancelled in (True, False)
    ),
    *(
        (("scheduled", "drop", "--all", *more), {"POST /scheduled/drop": answers})
        for more in (("--yes", "--json"), ("--dry-run",), ("--yes",), ())
        for answers in (
            partitions({"1.0": {"count": 3, "upto": 9}, "1.1": {"count": 0, "upto": 0}})
            + partitions({"1.0": {"count": 2, "upto": 9, "more": True}})
            + partitions({"1.0": {"count": 1, "upto": 9}}),
            partitions({"1.0": {"count": 0, "upto": 0}}),
        )
    ),
    *(
        (("groups", "remove", "workers", *more), {"POST /groups/workers/remove": answers})
        for more, answers in (
            (("--dry-run", "--json"), [REMOVAL]),
            (("--dry-run",), [{**REMOVAL, "is_removed": True, "dead_letters": 0}]),
            (("--yes", "--json"), [REMOVAL, REMOVAL, {"error": {"code": "unknown_group",
                                                                "message": "gone"}}]),
            (("--yes", "--wait", "0"), [REMOVAL]),
        )
    ),
    *(
        (
            ("rescale", "--partitions", "24", *more),
            {
                "POST /admin/v1/queues/orders/partitions": plans,
                "GET /status": [{**STATUS, "rescale": each} for each in steps],
            },
        )
        for more, plans, steps in (
            (("--plan",), [RESCALE_PLAN], [RESCALE]),
            (("--plan", "--json"), [RESCALE_PLAN], [RESCALE]),
            (("--plan",), [ON_KUBERNETES], [RESCALE]),
            (("--plan", "--wait"), [RESCALE_PLAN], [RESCALE]),
            ((), [RESCALE_PLAN, WANTED], [RESCALE]),
            ((), [ON_KUBERNETES, SAYS_KUBECTL], [RESCALE]),
            (("--json",), [WANTED], [RESCALE]),
            ((), [HAVING], [DRAINING]),
            (("--wait",), [WANTED], [RESCALE, OPENING, OPENING, DRAINING]),
            (("--wait", "settled", "--timeout", "0"), [WANTED], [DRAINING]),
            (("--wait", "--json"), [WANTED], [{**DRAINING, "phase": "Settled"}]),
            (("--wait",), [WANTED], [{**RESCALE, "to_count": 30}]),
            (("--wait", "settled"), [WANTED], [DRAINING, {**DRAINING, "retiring": 1},
                                               {**DRAINING, "phase": "Settled"}]),
            (("--wait",), [{**HAVING, "generation": 3}],
             [{**DRAINING, "earlier": [{**EARLIER, "generation": 3, "to_count": 24}]}]),
            (("--wait",), [HAVING], [{**DRAINING, "generation": 3, "from_count": 24,
                                      "to_count": 13}]),
        )
    ),
    *(
        (command, {"GET /layout": [LAYOUT], "GET /groups/workers/picture": [answer]})
        for command in (
            ("explain", "0", "--json"),
            ("explain", "0"),
            ("members", "--json"),
            ("members",),
            ("plan", "--from-live", "--members", "2", "--json"),
            ("plan", "--from-live", "--rollout"),
        )
        for answer in (PICTURE, SILENT)
    ),
]  # fmt: skip


class Broker:
    """Answers calls by a table and keeps what it is asked."""

    def __init__(self, answers: Answers) -> None:
        self._left = {call: list(some) for call, some in answers.items()}
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        call = f"{request.method} {request.path.removeprefix(PATH)}"
        body = await request.text()
        self.asked.append(f"{call} {body}".strip())
        left = self._left[call]
        found = left[0] if len(left) == 1 else left.pop(0)
        is_error = isinstance(found, dict) and "error" in found
        return web.json_response(found, status=503 if is_error else 200)


async def run(arguments: tuple[str, ...], answers: Answers) -> str:
    """Return a command with what it asks, prints and complains of."""
    broker = Broker(answers)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", broker.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        where = ["--url", url, "--queue", "orders", "--token", "t"]
        env = {"COLUMNS": "200"}
        given = [*arguments, *where]
        result = await asyncio.to_thread(CliRunner().invoke, cli, given, env=env)
    finally:
        await runner.cleanup()
    asked = "".join(f"> {call}\n" for call in sorted(broker.asked))
    assert isinstance(result.exception, SystemExit | None), f"{given}: {result.exception!r}"
    told = (result.stdout + result.stderr).replace(url, "URL")
    lines = "".join(f"{line.rstrip()}\n" for line in told.splitlines())
    return f"$ partq {' '.join(arguments)}\n{asked}{lines}exit status {result.exit_code}\n\n"


async def test_commands_print_what_they_printed() -> None:
    printed = "".join([await run(arguments, answers) for arguments, answers in CASES])
    if os.environ.get("RECORD_ANSWERS") == "1":
        GOLDEN.write_text(printed, encoding="utf-8")
    assert printed == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("answer", [STATUS, OLDER_STATUS])
async def test_a_status_in_json_is_the_broker_s_with_fields_that_nobody_knows(answer) -> None:
    printed = await run(("status", "--json"), {"GET /status": [answer]})
    assert json.dumps(answer) in printed.splitlines()
