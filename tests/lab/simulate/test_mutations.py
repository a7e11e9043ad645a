"""Every mistake in the protocol that the simulator must find, found; and nothing without it."""

import pytest

from partq.lab.simulate.trial import run_schedule
from tests.lab.simulate.feature_mutations import FEATURE_MUTATIONS
from tests.lab.simulate.mutations import MUTATIONS

MAX_SEEDS = 80
"""Most are found by the first ones."""

EACH = pytest.mark.parametrize(
    "mutation", [*MUTATIONS, *FEATURE_MUTATIONS], ids=lambda mutation: mutation.name
)


@EACH
def test_a_mistake_is_found_and_the_right_code_passes(mutation):
    for seed in range(MAX_SEEDS):
        with pytest.MonkeyPatch.context() as monkeypatch:
            mutation.apply(monkeypatch)
            found = run_schedule(mutation.schedule(seed)).violation
        if found is not None:
            break
    else:
        pytest.fail(f"not found in {MAX_SEEDS} seeds")
    assert found.invariant in mutation.violates, found
    right = run_schedule(mutation.schedule(seed))
    assert right.violation is None, "\n".join(right.lines())
