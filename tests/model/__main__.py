"""Search the models: `make model`.

make model                                   all scenarios, then all mistakes; minutes
make model ARGS=two-groups                   one scenario
make model ARGS="groups gate_by_sent"        with a mistake: the steps to the violation
"""

import argparse
import sys
import time
from itertools import chain

from tests.model.delivery import scenarios as delivery
from tests.model.delivery.delivery_model import DeliveryModel
from tests.model.delivery.session_model import SessionModel
from tests.model.delivery.session_scenarios import (
    SESSION_MUTANTS,
    SESSIONS_LARGE,
    SESSIONS_SMALL,
)
from tests.model.explorer import Finding, explore
from tests.model.rescale import scenarios as rescale
from tests.model.rescale.numbered_rows import NumberedRows
from tests.model.rescale.rescale_model import RescaleModel

CHANGES = rescale.SMALL | rescale.LARGE
DELIVERIES = delivery.SMALL | delivery.LARGE
SESSIONS = SESSIONS_SMALL | SESSIONS_LARGE
NAMES = (rescale.ATTEMPTS, *CHANGES, *DELIVERIES, *SESSIONS)
MISTAKES = {
    **dict.fromkeys((rescale.ATTEMPTS, *CHANGES), rescale.MUTANTS),
    **dict.fromkeys(DELIVERIES, delivery.MUTANTS),
    **dict.fromkeys(SESSIONS, SESSION_MUTANTS),
}
"""Scenario → the mistakes of its model."""


def search(scenario: str, mistake: str = "") -> Finding:
    """Search a scenario, with a mistake or without one."""
    if scenario == rescale.ATTEMPTS:
        return explore(NumberedRows(mistake))
    if scenario in CHANGES:
        return explore(RescaleModel(CHANGES[scenario], mistake))
    if scenario in SESSIONS:
        return explore(SessionModel(SESSIONS[scenario], mistake))
    return explore(DeliveryModel(DELIVERIES[scenario], mistake))


def report(scenario: str, mistake: str, expected: str | None, *, shows_trace: bool) -> bool:
    """Search and write what was found; return whether the expected invariant is broken, or none."""
    began = time.process_time()
    found = search(scenario, mistake)
    took_s = time.process_time() - began
    name = f"{scenario} + {mistake}" if mistake else scenario
    said = found.violation or "every invariant holds"
    lines = [f"{name}: {said} ({found.state_count} states, {took_s:.1f} s)"]
    if found.violation and shows_trace:
        lines += [f"  {number}. {label}" for number, label in enumerate(found.trace, 1)]
    elif found.violation:
        lines[0] += f", {len(found.trace)} steps"
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    return (found.violation.invariant if found.violation else None) == expected


def main() -> int:
    """Return the exit status: 0 if all invariants hold, and each mistake breaks the right one."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", choices=NAMES)
    parser.add_argument("mistake", nargs="?", choices=sorted({*chain(*MISTAKES.values())}))
    given = parser.parse_args()
    if given.scenario:
        mistakes = MISTAKES[given.scenario]
        if given.mistake and given.mistake not in mistakes:
            parser.error(f"{given.mistake}: not a mistake of the model of {given.scenario}")
        expected = mistakes[given.mistake].invariant if given.mistake else None
        return 0 if report(given.scenario, given.mistake or "", expected, shows_trace=True) else 1
    results = [report(name, "", None, shows_trace=True) for name in NAMES]
    for mistakes in (rescale.MUTANTS, delivery.MUTANTS, SESSION_MUTANTS):
        for name, mutant in mistakes.items():
            results.append(report(mutant.scenario, name, mutant.invariant, shows_trace=False))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
