"""Which number of partitions the operator advises for a queue, and since when."""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from partq.core.views.partition_advice import (
    WINDOW_COUNT,
    AdviceReason,
    GroupLoad,
    PartitionAdvice,
    Sample,
    advise,
)
from partq.kube.bodies import Body
from partq.resources.models import PartitionsPolicy


class AdviceWatch:
    """Samples one queue, and keeps what is advised for it.

    Another number is advised at the earliest when the policy's cooldown is over; another reason for
    the same number at once. What an operator before this one has advised is in the status.
    """

    def __init__(self) -> None:
        self.advice: PartitionAdvice | None = None
        """None: the queue was not watched for long enough."""
        self.since: datetime | None = None
        """Since when this number is advised."""
        self._samples: deque[Sample] = deque(maxlen=WINDOW_COUNT)

    def recall(self, body: Body) -> None:
        """Go on with the advice in the status, if this process has none."""
        told = (body.get("status") or {}).get("advice")
        if self.advice is not None or not isinstance(told, Mapping):
            return
        try:
            reason = AdviceReason(told["reason"])
            self.advice = PartitionAdvice(int(told["partitions"]), reason, str(told["message"]))
            self.since = datetime.fromisoformat(str(told["since"])).astimezone(UTC)
        except (KeyError, TypeError, ValueError):
            self.advice = self.since = None  # of another version: it is found again

    def forget_samples(self) -> None:
        """Begin to sample again: the number of partitions changes."""
        self._samples.clear()

    def add(
        self, groups: Mapping[str, GroupLoad], count: int, policy: PartitionsPolicy, now: datetime
    ) -> None:
        """Take up a sample of a queue whose number of partitions does not change now."""
        self._samples.append(groups)
        if len(self._samples) < WINDOW_COUNT:
            return
        found = advise([*self._samples], count, least=policy.least, most=policy.most)
        before = self.advice
        if before is None or self.since is None or before.partitions != found.partitions:
            if not self._may_differ(policy, now):
                return
            self.advice, self.since = found, now
        elif before.reason is not found.reason:
            self.advice = found

    def _may_differ(self, policy: PartitionsPolicy, now: datetime) -> bool:
        """Whether another number may be advised by now."""
        if self.advice is None or self.since is None:
            return True
        is_allowed = policy.least <= self.advice.partitions <= policy.most
        return not is_allowed or now - self.since >= timedelta(seconds=policy.cooldown_seconds)
