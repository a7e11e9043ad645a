"""Tokens: what they grant, how they are read and rotated."""

import json
import os

import pytest

from partq.broker.api.tokens import RELOAD_GAP_S, Role, Tokens, read_grants
from partq.errors import ForbiddenError, SettingsError, UnauthorizedError

LONG = "0123456789abcdef"


def write(path, *rows):
    path.write_text(json.dumps([{"queue": "orders", **row} for row in rows]))
    return path


def check(tokens, token, role, group=None, queue="orders"):
    """Return "" when the call may be made, else the code."""
    try:
        tokens.check(f"Bearer {token}", queue=queue, roles={role}, group=group)
    except (UnauthorizedError, ForbiddenError) as error:
        return "told" if token in error.message else error.code
    return ""


@pytest.fixture
def path(tmp_path):
    return write(
        tmp_path / "tokens.json",
        {"token": LONG + "p", "role": "produce"},
        {"token": LONG + "c", "role": "consume", "groups": ["a", "b"]},
        {"token": LONG + "e", "role": "consume"},
        {"token": LONG + "m", "role": "consume", "groups": [f"g{n:02}" for n in range(15)]},
        {"token": LONG + "x", "role": "admin"},
        {"token": LONG + "o", "role": "admin", "queue": "other"},
    )


@pytest.mark.parametrize(
    ("token", "role", "group", "expected"),
    [
        (LONG + "p", Role.PRODUCE, None, ""),
        (LONG + "p", Role.CONSUME, "a", "forbidden"),
        (LONG + "c", Role.CONSUME, "b", ""),
        (LONG + "c", Role.CONSUME, "z", "forbidden"),
        (LONG + "e", Role.CONSUME, "z", ""),
        (LONG + "x", Role.ADMIN, "z", ""),
        (LONG + "o", Role.ADMIN, None, "forbidden"),
        (LONG, Role.PRODUCE, None, "unauthorized"),
    ],
)
def test_a_token_grants_what_it_names(path, token, role, group, expected):
    assert check(Tokens(path, clock=lambda: 0.0), token, role, group) == expected


@pytest.mark.parametrize(
    ("token", "role", "group", "says"),
    [
        (LONG + "c", Role.CONSUME, "z", "queue orders, role consume, groups a, b; this call needs"),
        (LONG + "m", Role.CONSUME, "z", "groups g00, g01, g02, g03, g04, g05, g06, g07, g08, g09 "
         "and 5 more; this call"),
        (LONG + "p", Role.CONSUME, "a", "queue orders, role produce; this call needs"),
        (LONG + "e", Role.PRODUCE, None, "queue orders, role consume, every group; this call"),
        (LONG + "o", Role.ADMIN, None, "queue other, role admin; this call needs queue orders"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_the_token_is_for(path, token, role, group, says):
    """Its queue, role and groups: whoever holds it sees which one he has taken; never the token."""
    with pytest.raises(ForbiddenError) as caught:
        Tokens(path, clock=lambda: 0.0).check(
            f"Bearer {token}", queue="orders", roles={role}, group=group
        )
    assert says in caught.value.message
    assert LONG not in caught.value.message


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", f"Basic {LONG}p", f"{LONG}p"])
def test_without_a_bearer_token_nobody_enters(path, header):
    with pytest.raises(UnauthorizedError, match="in Python, give the client token="):
        Tokens(path, clock=lambda: 0.0).check(header, queue="orders", roles={Role.PRODUCE})


def test_tokens_are_rotated_while_the_broker_runs(path, caplog):
    """The file is looked at again after a while; a half-written one changes nothing."""
    now = [0.0]
    tokens = Tokens(path, clock=lambda: now[0])

    def change(text):
        path.write_text(text)
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))

    change("[{")
    for _ in range(3):
        now[0] += RELOAD_GAP_S
        assert check(tokens, LONG + "p", Role.PRODUCE) == ""
    assert len(caplog.records) == 1, "said once"
    write(path, {"token": LONG + "n", "role": "produce"})
    os.utime(path, ns=(0, 1))
    assert check(tokens, LONG + "n", Role.PRODUCE) == "unauthorized"  # not looked at again yet
    now[0] += RELOAD_GAP_S
    assert check(tokens, LONG + "n", Role.PRODUCE) == ""
    assert check(tokens, LONG + "p", Role.PRODUCE) == "unauthorized"
    path.unlink()
    now[0] += RELOAD_GAP_S
    assert check(tokens, LONG + "n", Role.PRODUCE) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tokens file"),
        ("{}", "a list"),
        ("[]", "1 to 1000"),
        ('["x"]', "entry 0"),
        ('[{"token": "0123456789abcdef", "queue": "q"}]', "role"),
        ('[{"token": "0123456789abcdef", "queue": "q", "role": "king"}]', "king"),
        ('[{"token": "short", "queue": "q", "role": "admin"}]', "16 characters"),
        (
            '[{"token": "0123456789abcdef", "queue": "q", "role": "consume", "groups": "a"}]',
            "groups",
        ),
    ],
)
def test_a_tokens_file_that_is_none_is_refused(tmp_path, text, problem):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=problem):
        read_grants(path)
