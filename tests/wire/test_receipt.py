"""Receipts: their text is opaque, whole or refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.errors import BadRequestError
from partq.wire.receipt import MAX_RECEIPT_CHARS, PulledReceipt

NUMBERS = st.integers(0, 2**63 - 1)
RECEIPT = PulledReceipt(1, 0, 5, 9, 0, 17, 12)


@given(st.builds(PulledReceipt, *[NUMBERS] * 7))
def test_a_receipt_is_read_as_it_was_written(receipt):
    text = receipt.encode()
    assert PulledReceipt.decode(text) == receipt
    assert len(text) <= MAX_RECEIPT_CHARS


def test_the_format_is_the_released_one():
    assert RECEIPT.encode() == "AQEABQkAEQzgeHuC"


@given(st.integers(0, 15), st.integers(0, 63))
def test_a_changed_character_is_refused(place, other):
    text = RECEIPT.encode()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    changed = text[:place] + alphabet[other] + text[place + 1 :]
    if changed != text:
        with pytest.raises(BadRequestError, match="checksum"):
            PulledReceipt.decode(changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "none",
        "AQEABQkAEQzgeHu",
        "AQEABQkAEQzgeHuCAA",
        "ü" * 16,
        "A" * 129,
        "A+/=",
        "AAAAAA",
    ],
)
def test_what_no_broker_wrote_is_refused_with_advice(text):
    with pytest.raises(BadRequestError, match="send the `receipt` of a pulled message unchanged"):
        PulledReceipt.decode(text)


@given(st.text(max_size=200))
def test_no_text_fails_otherwise(text):
    with suppress(BadRequestError):
        PulledReceipt.decode(text)
