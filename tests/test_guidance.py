"""Advice that users are promised stands in the documents, where they look for it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ADVICE = {
    "PUL-37": ("docs/client.md", "### Giving back", ["Prefer a nack", "ack timeout", "two reasons",
        "names the message that failed", "still being processed"]),
    "PUL-53": ("docs/client.md", "### Giving back", ["retry", "failures", "not a delayed delivery",
        "schedules"]),
    "PUL-26": ("docs/kubernetes.md", "## Metrics", ["partq_messages_taken_back",
        "nack.order: Free", "redelivered out of its order"]),
    "PUL-69": ("docs/kubernetes.md", "## Metrics", ["partq_lag",
        "messages not acknowledged yet", "protocol.md#lag"]),
    "PUL-77": ("docs/client.md", "### How much it holds ready", ["Acks of single messages",
        "of a batch", "memory", "partq_ack_ranges"]),
    "PUL-135": ("docs/client.md", "### Giving back", ["Many attempts", "durable", "stores",
        "nack.backoff", "forgets the rest of a delay"]),
    "PUL-136": ("docs/dead-letters.md", "## Afterwards", ["You decide", "program consumes",
        "By hand"]),
    "AZR-36": ("docs/client.md", "## Publishing", ["key only where its order matters",
        "binds the message to one partition"]),
    "AZR-37": ("docs/client.md", "## Publishing", ["Without a key", "availability", "With a key",
        "consistency"]),
    "AZR-59": ("docs/protocol.md", "## For every client", ["Keep connections open",
        "HTTP client that reuses its connection", "by default", "ours"]),
    "AZR-60": ("docs/resources.md", "## PartitionedQueue", ["little traffic", "partitions: 1",
        "The number can be [changed](rescale.md)"]),
    "SOL-46": ("docs/client.md", "## Publishing", ["keys from a wide range", "spread evenly",
        "skew", "partq status"]),
    "AZR-67": ("docs/kubernetes.md", "## What a queue owns", ["ResourceQuota",
        "count/partitionedqueues.partq.dev", "refuses the creation"]),
    "HND-25": ("docs/patterns.md", "## Ack last", ["acks of a complete sequence",
        "when the partition is cut off", "the other messages are redelivered"]),
    "HND-29": ("docs/patterns.md", "## Sequences that do not begin, or never end",
        ["without a beginning", "without an end", "decide in your code"]),
    "HND-32": ("docs/patterns.md", "## What you can count on", ["duplicates",
        "slow or selective ackers", "limit of unacknowledged messages", "costs throughput"]),
    "HND-33": ("docs/patterns.md", "## Zero", ["zero or low", "new sequences begin at once",
        "repeated", "FORCED_COMMIT"]),
}  # fmt: skip
"""Row → page, the heading above, and words that stand there in one paragraph, item or row."""


def paragraphs(page, heading):
    """Return the paragraphs and items of a section with those of the sections in it, as lines."""
    level = heading.split(" ")[0]
    text = (ROOT / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n{heading}\n")
    assert rest, f"{page} has no heading {heading}"
    section = re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n|\n(?=- |\| )", section)]


def missing(row):
    """Return the words of a row that stand in no paragraph together with the others."""
    page, heading, words = ADVICE[row]
    lacking = ([word for word in words if word not in each] for each in paragraphs(page, heading))
    return min(lacking, key=len)


@pytest.mark.req("PUL-26", "PUL-69", "HND-25", "HND-29")
@pytest.mark.req("PUL-37", "PUL-53", "PUL-77", "PUL-135", "PUL-136")
@pytest.mark.req("AZR-36", "AZR-37", "AZR-59", "AZR-60", "SOL-46", "HND-32", "HND-33")
@pytest.mark.parametrize("row", ADVICE)
def test_the_advice_is_there(row):
    page, heading, _ = ADVICE[row]
    assert not missing(row), f"{page}, {heading}: advice that users are promised ({row})"


@pytest.mark.parametrize("row", ADVICE)
def test_without_its_paragraph_it_is_missed(row, tmp_path, monkeypatch):
    """Its words stand nowhere else in the section, so that another sentence cannot stand in."""
    page, _, words = ADVICE[row]
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.split(r"(\n\s*\n|\n(?=- |\| ))", text)
    kept = [each for each in blocks if not all(word in " ".join(each.split()) for word in words)]
    path = tmp_path / page
    path.parent.mkdir()
    path.write_text("".join(kept))
    monkeypatch.setattr("tests.test_guidance.ROOT", tmp_path)
    assert missing(row)
