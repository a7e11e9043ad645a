"""docs/protocol.md has every call of the admin API."""

from pathlib import Path

import pytest

from partq.broker.api.routes.coordinator_calls import PREFIX, calls

PAGE = Path(__file__).parents[4] / "docs" / "protocol.md"


@pytest.mark.parametrize("call", list(calls), ids=lambda call: call.path.removeprefix(PREFIX))
def test_a_call_has_a_row(call):
    section = PAGE.read_text(encoding="utf-8").split("## For the coordinator")[1].split("\n## ")[0]
    assert f"| `{call.method} {call.path.removeprefix(PREFIX)}` |" in section
