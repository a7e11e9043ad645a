"""Search the model of a change of the partition count: `make model`.

make model                                   all scenarios, then all mistakes; minutes
make model ARGS=two-groups                   one scenario
make model ARGS="groups gate_by_sent"        with a mistake: the steps to the violation
"""

import argparse
import sys
import time

from tests.model.explorer import Finding, explore
from tests.model.numbered_rows import NumberedRows
from tests.model.rescale_model import RescaleModel
from tests.model.scenarios import ATTEMPTS, LARGE, MUTANTS, SMALL

NAMES = (ATTEMPTS, *SMALL, *LARGE)


def search(scenario: str, mutant: str = "") -> Finding:
    """Search a scenario, with a mistake or without one."""
    if scenario == ATTEMPTS:
        return explore(NumberedRows(mutant))
    return explore(RescaleModel((SMALL | LARGE)[scenario], mutant))


def report(scenario: str, mutant: str, *, shows_trace: bool) -> bool:
    """Search and write what was found; return whether it is what has to be found."""
    began = time.process_time()
    found = search(scenario, mutant)
    took_s = time.process_time() - began
    name = f"{scenario} + {mutant}" if mutant else scenario
    said = found.violation or "every invariant holds"
    lines = [f"{name}: {said} ({found.state_count} states, {took_s:.1f} s)"]
    if found.violation and shows_trace:
        lines += [f"  {number}. {label}" for number, label in enumerate(found.trace, 1)]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    broken = found.violation and found.violation.invariant
    return broken == (MUTANTS[mutant].invariant if mutant else None)


def main() -> int:
    """Return the exit status: 0 if all invariants hold, and each mistake breaks its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", choices=NAMES)
    parser.add_argument("mistake", nargs="?", choices=MUTANTS)
    given = parser.parse_args()
    if given.scenario:
        return 0 if report(given.scenario, given.mistake or "", shows_trace=True) else 1
    results = [report(name, "", shows_trace=True) for name in NAMES]
    for name, mutant in MUTANTS.items():
        results.append(report(mutant.scenario, name, shows_trace=False))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
