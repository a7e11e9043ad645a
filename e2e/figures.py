"""What a run has measured, shown at its end."""

from collections.abc import Iterator


class Figures:
    """Measurements, in the order in which they were made."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def add(self, what: str, value: str) -> None:
        """Note one, its value with its unit."""
        self._rows.append((what, value))

    def rows(self) -> list[tuple[str, str]]:
        """Return them, each with its value."""
        return list(self._rows)

    def lines(self) -> Iterator[str]:
        """Return a line for each."""
        width = max((len(what) for what, _ in self._rows), default=0)
        for what, value in self._rows:
            yield f"{what:<{width}}  {value}"
