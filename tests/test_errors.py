"""Codes are what programs compare: unique, documented, and the same on both sides."""

import ast
import re
from pathlib import Path

import pytest

from partq import errors
from partq.broker.api.errors import STATUS_BY_CODE
from partq.errors import (
    BY_CODE,
    InternalError,
    MemberRefusedError,
    MessageTooLargeError,
    NotListedError,
    PartqError,
    StoreUnavailableError,
    from_code,
)
from tests.syntax_trees import tree_of

PROTOCOL = Path(__file__).parent.parent / "docs" / "protocol.md"
INSIDE_ONE_PROCESS = {"bad_settings", "append_gap", "superseded"}
"""Codes that no client or coordinator is ever told."""

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PartqError) and kind is not PartqError
]
KIND = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__) for kind in KINDS])


def documented():
    """The protocol's table: a status for each code."""
    section = PROTOCOL.read_text(encoding="utf-8").split("## Errors")[1].split("\n## ")[0]
    rows = re.findall(r"((?:`[a-z_]+`,? ?)+)\| (\d{3}) \|", section)
    pairs = [(code, int(status)) for codes, status in rows for code in re.findall("[a-z_]+", codes)]
    assert len(dict(pairs)) == len(pairs), "a code stands there twice"
    return dict(pairs)


def test_codes_are_unique():
    codes = [kind.code for kind in KINDS]
    assert sorted(codes) == sorted(set(codes))
    assert set(BY_CODE) == set(codes)


def test_every_code_is_documented_and_none_that_is_not_there():
    assert set(documented()) == set(BY_CODE) - INSIDE_ONE_PROCESS


def test_brokers_answer_with_the_documented_status():
    assert set(STATUS_BY_CODE) == set(BY_CODE)
    answered = {code: STATUS_BY_CODE[code] for code in documented()}
    assert answered == documented()


def test_a_message_that_is_too_large_has_one_text():
    error = MessageTooLargeError.of(31, 30, what="message 2", queue="queue orders")
    assert error.message == (
        "message 2 of 31 bytes with key and headers; queue orders takes at most 30: split it, or "
        "raise limits.maxMessageBytes"
    )
    package = Path(errors.__file__).parent
    texts = [path.name for path in package.rglob("*.py") if "split it" in path.read_text("utf-8")]
    assert texts == ["errors.py"]


@KIND
def test_a_code_reads_back_as_its_error(kind):
    error = kind("partition 1.3: what to do", retry_after_s=0.5)
    copy = from_code(error.code, error.message, retry_after_s=error.retry_after_s)
    assert type(copy) is kind
    assert (copy.message, str(copy), copy.retry_after_s) == (error.message, error.message, 0.5)
    assert copy.is_retryable == error.is_retryable


@KIND
def test_a_code_is_words_that_fit_into_json_and_labels(kind):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)


@KIND
def test_an_error_says_what_it_means(kind):
    assert kind.__doc__


@pytest.mark.parametrize("code", ["", "of_a_later_version", "internal"])
def test_a_code_of_a_later_version_is_an_internal_error(code):
    error = from_code(code, "something new")
    assert type(error) is InternalError
    assert (error.code, error.message, error.retry_after_s) == ("internal", "something new", None)
    assert not error.is_retryable


def test_only_what_certainly_has_not_happened_is_said_to_be_known():
    assert not StoreUnavailableError("no answer").is_outcome_known
    assert StoreUnavailableError("refused", is_outcome_known=True).is_outcome_known


def test_all_errors_are_caught_by_their_base():
    assert all(issubclass(kind, PartqError) for kind in BY_CODE.values())
    with pytest.raises(PartqError, match="what happened"):
        raise from_code("fenced", "what happened")


def test_a_member_that_is_not_listed_yet_may_ask_again():
    """Without a coordinator nobody is listed, and a client that gave up would not come back."""
    assert NotListedError("x").is_retryable
    assert MemberRefusedError("x").is_retryable


WORDS_OF_ADVICE = ("expected", "at most", "needed", ";", ": ask ", ": send ", ": close ", "give ")
"""A message has one of these: what is expected, or behind a semicolon what to do."""
PACKAGES = ("broker", "client", "coordinator", "kube", "resources", "store")


def messages():
    """Each message that is written where an error is raised, with its place."""
    root = Path(errors.__file__).parent
    for path in sorted(path for name in PACKAGES for path in (root / name).rglob("*.py")):
        for call in ast.walk(tree_of(path)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args):
                continue
            kind = getattr(errors, call.func.id, None)
            if kind in KINDS and kind.code not in INSIDE_ONE_PROCESS - {"bad_settings"}:
                yield f"{path.relative_to(root)}:{call.lineno}", call.args[0]


def passes_on(message):
    """Whether it ends with the words of another error, which say what to do."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    return not (isinstance(parts[-1], ast.Constant) and str(parts[-1].value).strip("'\") "))


def test_a_message_says_what_is_expected_or_what_to_do():
    without = [
        f"{place}: {ast.unparse(message)}"
        for place, message in messages()
        if not passes_on(message)
        and not any(word in ast.unparse(message) for word in WORDS_OF_ADVICE)
    ]
    assert without == []
