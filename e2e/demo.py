"""`make demo-kubernetes`: real events through a real cluster while its consumers are scaled."""

import os
import sys
import time

from rich.console import Console

from e2e import manifests
from e2e.cluster import Cluster, ClusterError, choose
from e2e.images import CHECKOUT
from e2e.release import Release
from e2e.stage import Stage, StageError
from partq.lab.verdict.report import print_verdict

NAMESPACE = "demo"
FIRST_CONSUMERS = 2
SCALE_TO = (4, 6, 3)
EVENTS_PER_S = 1_000
KEPT = (
    f"the namespace {NAMESPACE}; `python3 -m e2e.cluster run bash` looks around, "
    "`python3 -m e2e.cluster down` ends it"
)
PAUSE_S = 5.0
"""How long the traffic is left alone between two changes, for those who look on."""


class Demo:
    """One run; `console` shows what is done and what comes of it; `keeps`: leave it running."""

    def __init__(self, cluster: Cluster, console: Console, *, keeps: bool) -> None:
        self._cluster = cluster
        self._console = console
        self._keeps = keeps

    def run(self) -> None:
        """Play all of it.

        Raises:
            ClusterError: a step failed.
            StageError: something did not come in time, or the verdict is not good.
        """
        if not self._keeps:
            self._cluster.down()  # what a run that was killed has left
        self._cluster.up()
        release = Release(self._cluster, CHECKOUT)
        release.load()
        self._say("helm upgrade --install partq charts/partq")
        release.install()
        stage = Stage(self._cluster, NAMESPACE, release.image)
        stage.delete_namespace()
        with stage:
            self._begin(stage)
            for consumers in SCALE_TO:
                self._scale(stage, consumers)
            self._say("waiting for the last event")
            stage.await_condition("job", manifests.PRODUCER, "Complete")
            print_verdict(self._console, stage.judge())
            if self._keeps:
                stage.keep()
                self._say(f"kept: {KEPT}")

    def _begin(self, stage: Stage) -> None:
        self._say("kubectl apply -f examples/queue.yaml")
        began = time.monotonic()
        stage.kubectl("apply", "--filename", str(CHECKOUT / "examples" / "queue.yaml"))
        stage.await_condition("pq", manifests.QUEUE)
        self._say(f"the queue is Ready after {time.monotonic() - began:.1f} s")
        stage.apply(*manifests.journals(stage.image))
        stage.await_condition("pod", manifests.JOURNALS)
        events = CHECKOUT / "examples" / "data" / "file-changes.ndjson.gz"
        target = f"{stage.namespace}/{manifests.JOURNALS}:{manifests.EVENTS_FILE}"
        stage.kubectl("cp", str(events), target)
        source = ("--input", manifests.EVENTS_FILE, "--per-s", str(EVENTS_PER_S))
        stage.apply(
            manifests.consumers(stage.image, FIRST_CONSUMERS),
            manifests.producer(stage.image, *source),
        )
        stage.await_shared(FIRST_CONSUMERS)
        self._show(stage)

    def _scale(self, stage: Stage, consumers: int) -> None:
        time.sleep(PAUSE_S)
        self._say(f"kubectl scale deployment workers --replicas={consumers}")
        began = time.monotonic()
        stage.scale(consumers)
        stage.await_shared(consumers)
        self._say(f"all partitions Ready after {time.monotonic() - began:.1f} s")
        self._show(stage)

    def _show(self, stage: Stage) -> None:
        """Print what kubectl says, and which member has which partitions."""
        self._console.print(stage.kubectl("get", "pq,cg"), markup=False, highlight=False)
        for row in stage.group_status()["assignments"]:
            self._console.print(f"  {row['pod']:<40} {row['partitions']}", markup=False)

    def _say(self, text: str) -> None:
        self._console.print(f"▶ {text}", style="bold", markup=False, highlight=False)


def main() -> int:
    """Run the demo; return its exit status."""
    cluster, keeps = choose(), os.environ.get("KEEP") == "1"
    try:
        Demo(cluster, Console(soft_wrap=True), keeps=keeps).run()
    except (ClusterError, StageError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if not keeps:
            cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
