"""Numbers that options take."""

import math
import re
from typing import Any

import click


class Quantity(click.FloatRange):
    """A number in a range. `nan` is in none: it compares with no bound, and so passes them all."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; refuse what is outside, and what is no number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"got {value}, expected a number {self._describe_range()}.", param, ctx)
        return number


_DELAY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}


class Delay(click.ParamType[float]):
    """A length of time such as `15m`, in seconds without a unit, of at most so many days."""

    name = "delay"

    def __init__(self, max_days: int) -> None:
        self._max_days = max_days

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        found = _DELAY.fullmatch(value) if isinstance(value, str) else None
        seconds = -1.0 if found is None else float(found[1]) * _SECONDS[found[2]]
        if not 0 <= seconds <= self._max_days * 86_400:
            self.fail(
                f"got {value}, expected a length of time such as 90s, 15m, 2h or 3d, of at most "
                f"{self._max_days} days.",
                param,
                ctx,
            )
        return seconds
