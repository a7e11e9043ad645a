"""What is deleted goes, in bounded time: a queue under load, a namespace with everything in it."""

import pytest

from e2e import manifests
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_a_queue_is_deleted_under_load_and_made_again(stage: Stage) -> None:
    stage.open()

    stage.kubectl("delete", "pq", manifests.QUEUE, "--timeout=60s")
    stage.eventually(lambda: not stage.get("statefulsets")["items"], "no broker left")
    # Its messages went with it: the verdict is about a queue of the same name, made after it.
    stage.clear_traffic()
    stage.apply(manifests.queue())
    stage.await_condition("pq", manifests.QUEUE)
    stage.start_traffic()

    stage.close()


def test_a_namespace_with_a_queue_under_load_is_deleted(stage: Stage) -> None:
    stage.open()

    stage.delete_namespace()
