"""What schemathesis loads beside the document, for `test_schemathesis.py`."""

import json
import os
from collections import Counter
from typing import Any

import schemathesis

from partq.wire.calls.bodies import MAX_DRAIN_WAIT_MS, MAX_PULL_WAIT_MS

ALLOWED = {"/drain": range(MAX_DRAIN_WAIT_MS + 1), "/pull": range(MAX_PULL_WAIT_MS + 1)}
"""By how their paths end: calls whose body says how long they may wait."""
SHORT_MS = 20
MEMBER = {"member": "m", "incarnation": "i"}
TOKENS = "TESTS_TOKENS"
"""The variable with the tokens of the callers, who take turns: a JSON list; "" is no token."""

_tokens = json.loads(os.environ.get(TOKENS, "[]"))
_calls: Counter[str] = Counter()
"""So many were made to each operation."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Lead calls behind the first checks, and do not let them last; what is refused stays so."""
    count = _calls[case.operation.label]
    _calls[case.operation.label] += 1
    if _tokens:
        case.headers = {k: v for k, v in case.headers.items() if k.lower() != "authorization"}
        if token := _tokens[count % len(_tokens)]:
            case.headers["Authorization"] = f"Bearer {token}"
    body = case.body
    if not isinstance(body, dict):
        return
    if case.path.endswith("/remove") and type(body.get("is_dry_run", False)) is bool:
        body["is_dry_run"] = True  # the calls behind it need the group
    allowed = next((ALLOWED[end] for end in ALLOWED if case.path.endswith(end)), ())
    if type(body.get("wait_ms")) is int and body["wait_ms"] in allowed:
        body["wait_ms"] = min(body["wait_ms"], SHORT_MS)
    elif allowed and "wait_ms" not in body and count % 8:
        body["wait_ms"] = SHORT_MS  # a call that says nothing may wait for a second
    body.update({name: known for name, known in MEMBER.items() if isinstance(body.get(name), str)})
