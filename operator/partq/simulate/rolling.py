"""A Deployment that is rolled out: each of its pods is replaced, one after the other."""

from collections.abc import Generator

from partq.core.membership import MemberFact
from partq.simulate.world import Pod, World


class Rolling:
    """One rollout; what the coordinator hears of it is what the operator makes of the pods."""

    def __init__(self, world: World, *, is_surge: bool, ready_s: float, grace_s: float) -> None:
        """Prepare it.

        Args:
            world: whose pods are replaced.
            is_surge: a new pod comes before an old one goes; else after.
            ready_s: how long a new pod takes to be Ready.
            grace_s: how long an old one may take to end.
        """
        self._world = world
        self._is_surge = is_surge
        self._ready_s = ready_s
        self._grace_s = grace_s
        self._steps = self._replace_all()

    def go_on(self) -> None:
        """Do what is to be done now, and the rest by itself later."""
        if next(self._steps, None) is not None:
            self._world.later(self._ready_s, self.go_on)

    def _replace_all(self) -> Generator[Pod, None, None]:
        """Replace each pod, and wait for every new one."""
        world = self._world
        old = [pod for pod in world.pods.values() if not pod.is_leaving]
        new = []
        for pod in old:
            if not self._is_surge:
                self._end(pod)
            new.append(world.start_pod(MemberFact.IS_REPLACEMENT))
            for other in old:
                self._tell(other, MemberFact.IS_AVOIDED)
            yield new[-1]
            if self._is_surge:
                self._end(pod)
        while any(world.pods.get(pod.name) is pod for pod in old):
            yield new[-1]  # as long as there are two templates, this is a rollout
        for pod in new:
            self._tell(pod, MemberFact.EXISTS)

    def _end(self, pod: Pod) -> None:
        if self._lives(pod):
            self._world.replace_pod(pod, self._grace_s)

    def _tell(self, pod: Pod, fact: MemberFact) -> None:
        if self._lives(pod):
            self._world.tell(pod.name, fact)

    def _lives(self, pod: Pod) -> bool:
        return self._world.pods.get(pod.name) is pod and not pod.is_leaving
