"""What a search has to find, so that its finding nothing means something."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A protocol with one mistake."""

    mistake: str
    scenario: str
    invariant: str
    """The invariant that the mistake breaks in that scenario."""
