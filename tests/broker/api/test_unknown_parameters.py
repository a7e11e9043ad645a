"""A parameter of a query that a call does not have is refused, and those that it has are named."""

import pytest
from msgspec import structs

from partq.broker.api.tokens import Role
from tests.broker.contract import TABLE

PARTS = {"queue": "orders", "group": "workers", "partition": "1.0", "member": "m", "pin": "p"}
PARTS["number"] = "0001795324574173"
PARTS |= {"producer": "p", "broker": "b"}
CHECKED = [call for call in TABLE if Role.ADMIN in call.roles]


@pytest.mark.parametrize("call", CHECKED, ids=lambda call: f"{call.method} {call.path}")
async def test_each_call_names_the_parameters_that_it_has(running, peers, call):
    path = call.path.format_map(PARTS)
    known = [each.encode_name for each in structs.fields(call.query)] if call.query else []
    query = "?namespace=default&frm=5"
    status, answer = await running.call(call.method, path + query, token=peers.ADMIN)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert answer["error"]["message"] == (
        f"query: got the unknown parameter frm, expected {', '.join([*known, 'namespace'])}; "
        "leave it out"
    )


async def test_who_may_not_call_learns_nothing_of_the_parameters(running):
    status, answer = await running.call(
        "GET", "/v1/queues/orders/layout?x=1", token="no-such-token"
    )
    assert (status, answer["error"]["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json"])
async def test_calls_without_a_token_take_what_monitoring_adds(running, path):
    async with running.session.get(f"{running.url}{path}?x=1") as response:
        assert response.status == 200
