"""What schemathesis loads beside the document, for `test_schemathesis.py`."""

import json
import os
from collections import Counter
from typing import Any

import schemathesis

from partq.wire.calls.bodies import MAX_DRAIN_WAIT_MS, MAX_PULL_WAIT_MS

ALLOWED = range(min(MAX_DRAIN_WAIT_MS, MAX_PULL_WAIT_MS) + 1)
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
    if _tokens:
        count = _calls[case.operation.label]
        _calls[case.operation.label] += 1
        case.headers = {k: v for k, v in case.headers.items() if k.lower() != "authorization"}
        if token := _tokens[count % len(_tokens)]:
            case.headers["Authorization"] = f"Bearer {token}"
    body = case.body
    if not isinstance(body, dict):
        return
    if case.path.endswith("/remove") and type(body.get("is_dry_run", False)) is bool:
        body["is_dry_run"] = True  # the calls behind it need the group
    if type(body.get("wait_ms")) is int and body["wait_ms"] in ALLOWED:
        body["wait_ms"] = min(body["wait_ms"], SHORT_MS)
    body.update({name: known for name, known in MEMBER.items() if isinstance(body.get(name), str)})
