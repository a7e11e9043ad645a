"""Thousands of calls made up from `/openapi.json`: no 5xx, and every answer as it is described."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from partq.testing.local_broker import LocalBroker
from tests.broker.contract import TABLE
from tests.broker.schemathesis_hooks import TOKENS

CONFIGURATION = """
[parameters]
"path.queue" = "orders"
"path.group" = "workers"
"path.member" = "m"
"query.namespace" = "default"
"""
# Not "negative_data_rejection": calls of many items answer 200 with an error for each bad one.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)


RUNS = {
    "admin": (["admin"], "coverage,fuzzing", 20),
    "others": (["consume", "produce", ""], "fuzzing", 12),
}
"""Whose calls are made up, and how many of each kind, which bounds a run; "": without a token.

Each run takes ten seconds before its first call, so callers take turns in one, call by call. What
is tried without a token beside each call (`ignored_auth`) needs one that all calls have.
"""


# What hangs is one call, which has a minute; thousands that are slow on a busy machine are no hang.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("run", RUNS)
async def test_no_call_is_answered_otherwise_than_described(tmp_path, run):
    """The same calls in every run. What fails is printed with a curl command that repeats it."""
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    root = Path(__file__).parents[3]
    roles, phases, examples = RUNS[run]
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "SCHEMATHESIS_HOOKS": "tests.broker.schemathesis_hooks",
    }
    # The lease is long: a broker that is late on a busy machine must not answer 503.
    async with LocalBroker(lease_ttl_s=30.0) as broker:
        tokens = [getattr(broker.tokens, role, "") for role in roles]
        if len(tokens) > 1:
            environment[TOKENS] = json.dumps(tokens)
            callers = [f"--checks={','.join(CHECKS)}"]
        else:
            callers = [f"--checks={','.join(CHECKS)},ignored_auth"]
            callers.append(f"--header=Authorization: Bearer {tokens[0]}")
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "schemathesis"),
            f"--config-file={configuration}",
            "run",
            f"{broker.url}/openapi.json",
            "--seed=1",
            f"--phases={phases}",
            f"--max-examples={examples}",
            *callers,
            "--request-timeout=60",
            "--no-color",
            cwd=tmp_path,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    text = output.decode()
    assert process.returncode == 0, text
    described = [call for call in TABLE if call.path != "/openapi.json"]  # read, so not called
    assert f"Tested: {len(described)}\n" in text, text
