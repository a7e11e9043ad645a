"""Percentiles of measured values."""

from collections.abc import Iterable


def percentile(values: Iterable[float], percent: int) -> float | None:
    """Return the smallest of the values that `percent` % of them do not exceed; None of none.

    The values may have any order; `percent` is 1 to 100.
    """
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
