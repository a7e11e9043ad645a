"""A Job with Spark archives a queue under load: every message once, and the cursors move."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e import manifests
from e2e.figures import Figures
from e2e.stage import Stage, StageError
from partq.lab.verdict.journal_rows import PublishedRow

pytestmark = pytest.mark.timeout(1200)

READER = "archive-reader"
JOB = "archive"
JOB_S = 420.0
"""Twenty seconds where there is a core for it; Java on a busy machine takes longer than others."""
BROKERS = {"replicas": 2, "resources": {"requests": {"cpu": "250m"}}}
"""Beside a pod that asks for a processor brokers that do not would get what it leaves: nothing."""
SMALL = (
    *("--master", "local[1]"),
    *("--conf", "spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)
"""What docs/spark-on-kubernetes.md advises for small jobs."""
_READ = """
import json, sys
import pyarrow.dataset
folder = pyarrow.dataset.dataset("/archive/orders/messages", format="parquet", partitioning="hive")
rows = folder.to_table(columns=["partition", "offset", "key"]).to_pydict()
json.dump(list(zip(rows["partition"], rows["offset"], rows["key"])), sys.stdout)
"""
"""Prints the archive's messages, without Spark: what is there is plain Parquet."""


def test_a_job_archives_a_queue_under_load(
    stage: Stage, archiving: Callable[[], dict[str, Any]], figures: Figures
) -> None:
    stage.open(consumers=2, brokers=BROKERS)
    assert lag_of_archive(stage) > 0

    began = time.monotonic()
    done = archiving()
    figures.add("a Job with Spark archives a queue", f"{time.monotonic() - began:.1f} s")
    first = archived(stage)
    assert done["rows"] == {"messages": len(first)}
    published = {place: row.key for place, row in places(stage).items()}
    assert first
    # Nothing of it is there twice, nothing in it was never published, nothing is left out between.
    assert Counter(place for place, _ in first).most_common(1)[0][1] == 1
    assert {place: published[place] for place, _ in first} == dict(first)
    for partition in {partition for (partition, _), _ in first}:
        offsets = sorted(offset for (found, offset), _ in first if found == partition)
        assert offsets == list(range(len(offsets)))

    stage.close()
    done = archiving()
    # The second run continues where the first has ended: the cursors are where the archive is.
    both = archived(stage)
    assert sorted(both) == sorted((place, row.key) for place, row in places(stage).items())
    # There are no rows if the first run was so slow that it read all of them.
    assert done["rows"].get("messages", 0) == len(both) - len(first)
    assert lag_of_archive(stage) == 0


@pytest.fixture
def archiving(
    stage: Stage, spark_image: str, pytestconfig: pytest.Config
) -> Callable[[], dict[str, Any]]:
    """Run the example, and return what the Job prints at its end.

    It is as it is but for its image, what a small job adds, and a limit: of two cores it has one.
    """
    folder = pytestconfig.rootpath / "examples" / "spark"
    documents = [
        document
        for name in ("group.yaml", "job.yaml")
        for document in yaml.safe_load_all((folder / name).read_text(encoding="utf-8"))
    ]
    group, claim, job = documents
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = spark_image
    container["args"] += SMALL
    container["resources"]["limits"]["cpu"] = "1"
    stage.apply(manifests.queue(brokers=BROKERS))
    stage.apply(group, claim)
    stage.apply(reader(job["spec"]["template"]["spec"]))
    stage.await_condition("pod", READER)

    def run() -> dict[str, Any]:
        stage.kubectl("delete", "job", JOB, "--ignore-not-found", "--wait=true")
        stage.apply(job)
        stage.eventually(lambda: has_ended(stage), "the end of the Job", JOB_S)
        lines = stage.kubectl("logs", f"job/{JOB}").splitlines()
        # Beside the result are the lines of progress, in any order.
        printed: dict[str, Any]
        (printed,) = (json.loads(line) for line in lines if line.startswith("{"))
        return printed

    return run


def has_ended(stage: Stage) -> bool:
    """Say whether the Job has done its work; nothing here lets it fail, so one failure is one."""
    status = stage.get("job", JOB).get("status", {})
    if status.get("failed"):
        logs = stage.kubectl("logs", "--selector", f"job-name={JOB}", "--tail=-1")
        raise StageError(f"a pod of the Job failed:\n{logs}\n{stage.describe()}")
    return bool(status.get("succeeded"))


def reader(template: dict[str, Any]) -> dict[str, Any]:
    """Return a pod like the Job's, on the node of its volume, that waits to be asked."""
    (container,) = template["containers"]
    waiting = {**container, "command": ["sleep", "infinity"], "args": [], "resources": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": READER},
        "spec": {**template, "containers": [waiting], "terminationGracePeriodSeconds": 0},
    }


def archived(stage: Stage) -> list[tuple[tuple[str, int], str]]:
    """Return place and key of every message in the archive."""
    rows = json.loads(stage.kubectl("exec", READER, "--", "python3", "-P", "-c", _READ))
    return [((partition, offset), key) for partition, offset, key in rows]


def places(stage: Stage) -> dict[tuple[str, int], PublishedRow]:
    """Return everything that the producer has written down as stored, by its place."""
    rows = (row for row in stage.rows() if isinstance(row, PublishedRow))
    return {(row.partition, row.offset): row for row in rows}


def lag_of_archive(stage: Stage) -> int:
    """Return how many messages the group of the archive has before it."""
    groups: Any = stage.partq("groups")
    (lag,) = (group["lag"] for group in groups if group["group"] == JOB)
    return int(lag)
