"""Die at a chosen store call: how tests prove that any call may be the last one."""

import os
from dataclasses import dataclass, field
from typing import Literal, Self, cast

from partq.errors import SettingsError

Phase = Literal["before", "after"]

EXIT_STATUS = 137
"""What the process ends with: the same as after kill -9."""


@dataclass(slots=True)
class FailPoint:
    """End the process at the n-th call of one operation, before its sending or after its answer."""

    phase: Phase
    operation: str
    """A script's name, such as `append_batches`, or a plain command in small letters."""
    hit_count: int
    _seen_count: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `before:append_batches:3`; the number counts from 1.

        Raises:
            SettingsError: not PHASE:OPERATION:NUMBER.
        """
        phase, _, rest = text.partition(":")
        operation, _, count = rest.partition(":")
        is_count = count.isdecimal() and int(count) > 0
        if phase not in ("before", "after") or not operation or not is_count:
            raise SettingsError(
                f"fail point {text!r}: expected PHASE:OPERATION:NUMBER, "
                "such as before:append_batches:3"
            )
        return cls(cast(Phase, phase), operation, int(count))

    def hit(self, phase: Phase, operation: str) -> None:
        """End the process, without any clean-up, if this is the chosen call."""
        if phase != self.phase or operation != self.operation:
            return
        self._seen_count += 1
        if self._seen_count == self.hit_count:
            os._exit(EXIT_STATUS)
