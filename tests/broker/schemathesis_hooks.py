"""What schemathesis loads beside the document, for `test_schemathesis.py`."""

from typing import Any

import schemathesis

from partq.wire.bodies import MAX_DRAIN_WAIT_MS, MAX_PULL_WAIT_MS

ALLOWED = range(min(MAX_DRAIN_WAIT_MS, MAX_PULL_WAIT_MS) + 1)
SHORT_MS = 20
MEMBER = {"member": "m", "incarnation": "i"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Lead calls behind the first checks, and do not let them last; what is refused stays so."""
    body = case.body
    if not isinstance(body, dict):
        return
    if type(body.get("wait_ms")) is int and body["wait_ms"] in ALLOWED:
        body["wait_ms"] = min(body["wait_ms"], SHORT_MS)
    body.update({name: known for name, known in MEMBER.items() if isinstance(body.get(name), str)})
