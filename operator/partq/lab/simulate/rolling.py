"""A Deployment that is rolled out: each of its pods is replaced, one after the other."""

from collections.abc import Generator

from partq.core.group.observation import MemberFact
from partq.lab.simulate.cluster import SimCluster, SimPod
from partq.lab.simulate.oracle.facts import GROUP


class Rolling:
    """One rollout; what the coordinator hears of it is what the operator makes of the pods."""

    def __init__(
        self, cluster: SimCluster, *, is_surge: bool, ready_s: float, grace_s: float
    ) -> None:
        """Prepare it.

        Args:
            cluster: whose pods are replaced.
            is_surge: a new pod comes before an old one goes; else after.
            ready_s: how long a new pod takes to be Ready.
            grace_s: how long an old one may take to end.
        """
        self._cluster = cluster
        self._is_surge = is_surge
        self._ready_s = ready_s
        self._grace_s = grace_s
        self._old = [p for p in cluster.pods.values() if p.group == GROUP and not p.is_leaving]
        """Of the template that is given up."""
        self._new: list[SimPod] = []
        self._round = 0
        self._steps = self._replace(self._old)

    def go_on(self) -> None:
        """Do what is to be done now, and the rest by itself later."""
        self._go_on(self._round)

    def _go_on(self, number: int) -> None:
        if number == self._round and next(self._steps, None) is not None:
            self._cluster.later(self._ready_s, lambda: self._go_on(number))

    def turn_back(self) -> None:
        """Roll back from now on: the new pods are replaced, and the old ones stay."""
        self._round += 1
        staying, leaving = self._living(self._old), self._living(self._new)
        self._old, self._new = leaving, staying
        for pod in staying:
            self._inform(pod, MemberFact.EXISTS)
        self._steps = self._replace(leaving)
        self.go_on()

    def stop(self) -> None:
        """Leave it as it is: nobody replaces anybody any more."""
        self._round += 1
        for pod in [*self._old, *self._new]:
            self._inform(pod, MemberFact.EXISTS)

    def _replace(self, pods: list[SimPod]) -> Generator[SimPod, None, None]:
        """Replace each of some pods, and wait for every new one."""
        cluster = self._cluster
        for pod in pods:
            if not self._is_surge:
                self._end(pod)
            new = cluster.start_pod(MemberFact.IS_REPLACEMENT)
            self._new.append(new)
            for other in pods:
                self._inform(other, MemberFact.IS_AVOIDED)
            yield new
            if self._is_surge:
                self._end(pod)
        while any(cluster.pods.get(pod.name) is pod for pod in pods):
            yield pods[-1]  # as long as there are two templates, this is a rollout
        for pod in self._new:
            self._inform(pod, MemberFact.EXISTS)

    def _living(self, pods: list[SimPod]) -> list[SimPod]:
        return [pod for pod in pods if self._lives(pod)]

    def _end(self, pod: SimPod) -> None:
        if self._lives(pod):
            self._cluster.replace_pod(pod, self._grace_s)

    def _inform(self, pod: SimPod, fact: MemberFact) -> None:
        if self._lives(pod):
            self._cluster.inform(pod.name, fact)

    def _lives(self, pod: SimPod) -> bool:
        return self._cluster.pods.get(pod.name) is pod and not pod.is_leaving
