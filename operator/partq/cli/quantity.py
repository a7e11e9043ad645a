"""Numbers that options take."""

import math
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
