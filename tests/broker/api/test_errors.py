"""Every error has its HTTP status, and one shape."""

import json

import pytest

from partq.broker.api.errors import STATUS_BY_CODE, error_response
from partq.errors import BY_CODE, FencedError, from_code


def test_every_code_has_a_status():
    assert set(STATUS_BY_CODE) == set(BY_CODE)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_what_may_be_repeated_does_not_read_as_a_mistake_of_the_caller(code):
    """A client that only knows HTTP repeats on 403, 409, 421, 429 and 5xx, never on other 4xx."""
    if BY_CODE[code].is_retryable:
        assert STATUS_BY_CODE[code] in {403, 409, 421, 429, 503, 504, 507}


def test_an_error_comes_as_json_with_its_status():
    response = error_response(FencedError("partition 1.0: over", retry_after_s=1.2))
    assert (response.status, response.headers["Retry-After"]) == (409, "2")
    assert json.loads(response.body) == {
        "error": {"code": "fenced", "message": "partition 1.0: over", "retry_after_ms": 1200}
    }


def test_without_advice_there_is_no_retry_after():
    response = error_response(from_code("internal", "x"))
    assert (response.status, "Retry-After" in response.headers) == (500, False)
