"""Die at a chosen store call: how tests prove that any call may be the last one."""

import os
from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["before", "after"]

EXIT_STATUS = 137
"""Exit status of the process: the same as after kill -9."""


@dataclass(slots=True)
class FailPoint:
    """End the process at the n-th call of one operation, before its sending or after its answer.

    No setting makes one: only a test's program hands it to the store of its process.
    """

    phase: Phase
    operation: str
    """A script's name, such as `append_batches`, or a plain command in small letters."""
    hit_count: int
    _seen_count: int = field(default=0, init=False)

    def hit(self, phase: Phase, operation: str) -> None:
        """End the process, without any clean-up, if this is the chosen call."""
        if phase != self.phase or operation != self.operation:
            return
        self._seen_count += 1
        if self._seen_count == self.hit_count:
            os._exit(EXIT_STATUS)
