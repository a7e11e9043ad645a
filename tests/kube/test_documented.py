"""What people look up: every reason, condition, annotation and Event has its line."""

from pathlib import Path

import pytest

from partq.kube import names

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"


@pytest.mark.parametrize(
    "words",
    [
        names.ConditionType,
        names.Reason,
        names.EventReason,
        [names.PAUSE, names.PAUSE_REBALANCE, names.REBALANCE_NOW, names.FINALIZER],
    ],
)
def test_words_are_explained(words):
    text = PAGE.read_text(encoding="utf-8")
    assert [str(word) for word in words if f"`{word}`" not in text] == []
