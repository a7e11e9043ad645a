"""A group whose pods, flows and time a test plays, under the operator's own facts and plans.

What brokers and store would say is kept here; what it means is decided by the real parts: the
cluster's view, what is known of the members' pods, the judgement, the plan.
"""

from collections import Counter

from partq.core.group.membership import assess
from partq.core.group.planner import GroupRules, plan
from partq.core.group.standby import StandbyPolicy
from partq.core.model import MemberId, PartitionId
from partq.kube.member_pods import MemberPods
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from tests.core.group.test_planner import group
from tests.kube.bodies import group_body, pod_body, queue_body
from tests.kube.played_clock import Clock

GRACE_S = 30
DELAY_S = 5.0


def uid_of(number):
    return f"{number:08x}-bbbb-4ccc-8ddd-eeeeeeeeeeee"


class PlayedGroup:
    """Pods by number; each has one member, which is its pod's uid."""

    def __init__(self, *, partitions=12, policy="KubernetesAware", standby=StandbyPolicy.AT_ONCE):
        self.standby = standby
        self.clock = Clock()
        self.cache = ObjectCache(lambda key: None, self.clock)
        self.cache.complete("")
        self.cache.put_queue(queue_body())
        self.cache.put_group(group_body())
        self.member_pods = MemberPods(
            self.cache,
            "shop",
            policy_of=lambda name: policy,
            delay_s_of=lambda name: DELAY_S,
            clock=self.clock,
        )
        self.owners = dict.fromkeys(PartitionId(1, index) for index in range(partitions))
        self.replacements = {}
        self.moves = Counter()
        """How often each partition has left a member for another."""
        self.last = []
        """The moves of the last look."""
        self._bodies = {}
        self._bound = set()
        self._leaving = set()
        self._lost_at = {}

    # ---- what happens ---------------------------------------------------------------------------

    def pod(self, number, template="old", *, connects=True, **body):
        """Make a pod, or change what it says; its flow is there at once, unless told otherwise."""
        uid = uid_of(number)
        if uid not in self._bodies:
            minute = len(self._bodies)
            made = f"2026-11-20T10:{minute:02}:00Z"
            self._bodies[uid] = (template, made, {})
            if connects:
                self.connect(number)
        template, made, known = self._bodies[uid]
        known |= body
        found = pod_body(known.get("name", f"w-{number}"), uid=uid, **_without(known, "name"))
        found["metadata"]["labels"]["pod-template-hash"] = template
        found["metadata"]["creationTimestamp"] = made
        if known.get("owner", "ReplicaSet") == "ReplicaSet":
            found["metadata"]["ownerReferences"][0]["name"] = f"workers-{template}"
        self.cache.put_pod(parse.pod(found))
        return MemberId(uid)

    def end(self, number, *, grace_s=GRACE_S):
        """Tell a pod to end."""
        self.pod(number, deletion_grace=grace_s)

    def remove(self, number):
        """Take a pod's object away."""
        pod = self.cache.pod(uid_of(number))
        self.lose(number)
        self.cache.drop_pod(pod)

    def finish(self, number):
        """Let a pod that ends come to its end."""
        self.pod(number, ended=True)
        self.remove(number)

    def connect(self, number):
        self._bound.add(uid_of(number))
        self._lost_at.pop(uid_of(number), None)

    def lose(self, number):
        self._bound.discard(uid_of(number))
        self._lost_at.setdefault(uid_of(number), self.clock.now)

    def leave(self, number):
        """Let a pod's process say that it leaves; it continues until it has handed over."""
        self._leaving.add(uid_of(number))

    # ---- what is done ---------------------------------------------------------------------------

    def look(self, *, at_most=None):
        """Look once and carry the plan out; `at_most`: the coordinator dies after so many moves."""
        members = {*self._bound, *self._lost_at, *filter(None, self.owners.values())}
        observation = group(
            list(self.owners.values()),
            bound=sorted(self._bound),
            lost={m: round((self.clock.now - at) * 1000) for m, at in self._lost_at.items()},
            facts=self.member_pods.facts("workers", members, self._leaving & self._bound),
            leaving=self._leaving,
            replacements=dict(self.replacements),
        )
        rules = GroupRules(standby=self.standby)
        self.last = plan(observation, assess(observation, rules.membership), rules, {})
        self.replacements |= {m.ownership.member: m.target for m in self.last if m.is_inherited}
        for move in self.last[:at_most]:
            self.owners[move.partition] = move.target
            self.moves[move.partition] += move.ownership.member is not None
        return self.last

    def settle(self):
        """Look until nothing moves any more; return all that has moved."""
        moved = []
        for _ in range(20):
            if not self.look():
                return moved
            moved += self.last
        raise AssertionError("it never settles")

    def pass_time(self, seconds):
        self.clock.now += seconds

    def held(self):
        """Return how many partitions each pod has, by number."""
        return Counter(int(owner[:8], 16) if owner else None for owner in self.owners.values())


def _without(known, key):
    return {name: value for name, value in known.items() if name != key}
