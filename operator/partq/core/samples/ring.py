"""The last ten minutes of a broker, in steps: what it has counted in each.

No I/O. What is kept is bounded: so many steps, and so many groups in each.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from partq.core.samples.waits import Span

STEP_S = 5.0
"""Length of a step, in seconds."""
KEPT_STEPS = 120
"""How many steps are kept: ten minutes."""
MAX_RATED_GROUPS = 64
"""Groups that are kept, the first by name."""


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One step of a group at one broker."""

    delivered: int
    """Messages sent, redeliveries among them."""
    lag: int
    age_ms: int | None
    """How long the oldest message that is not acknowledged has been stored; None: not known."""
    waits: Span
    """From the storing of a message until it was sent the first time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One step of a broker."""

    step: int
    """Its number: the clock at its end, by the length of a step."""
    accepted: int
    waits: Span
    """From the arrival of a batch to the answer of its append; each as its oldest one."""
    groups: Mapping[str, GroupSample]


@dataclass(slots=True)
class SampleRing:
    """The last samples of a broker; a new one takes the place of the oldest."""

    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))

    def add(self, sample: Sample) -> None:
        """Keep a sample; its step is above those of all before."""
        self._samples.append(sample)

    def window(self, step: int) -> list[Sample | None]:
        """Return the steps up to `step`, the oldest first; None: there is no sample of one."""
        found = {sample.step: sample for sample in self._samples}
        return [found.get(each) for each in range(step - KEPT_STEPS + 1, step + 1)]
