"""The examples work as they are: queue.yaml, consumers.yaml, producer.yaml."""

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest

from e2e.release import Release
from e2e.stage import Stage

Example: TypeAlias = Callable[[str], str]
"""Returns the text of an example by its name."""

pytestmark = pytest.mark.timeout(600)


def test_the_examples_work_as_they_are(stage: Stage, release: Release, example: Example) -> None:
    stage.kubectl("apply", "--filename", "-", stdin=example("queue.yaml"))
    stage.await_condition("pq", "orders")
    for name in ("consumers.yaml", "producer.yaml"):
        stage.kubectl("apply", "--filename", "-", stdin=example(name))
    stage.await_condition("job", "producer", "Complete")

    stage.eventually(lambda: len(_consumed(stage)) == 3, "three messages printed")
    assert _consumed(stage) == ["ordered", "paid", "shipped"]


@pytest.fixture
def example(release: Release, pytestconfig: pytest.Config) -> Example:
    def read(name: str) -> str:
        text = (pytestconfig.rootpath / "examples" / name).read_text(encoding="utf-8")
        return text.replace("image: partq:0.1.0", f"image: {release.image}")

    return read


def _consumed(stage: Stage) -> list[str]:
    lines = stage.kubectl("logs", "--selector=app=workers", "--tail=-1").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    return [row["value"] for row in rows]
