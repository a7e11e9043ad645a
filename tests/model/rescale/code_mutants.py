"""The mistakes of the model, made in the code: `make code-mutants`.

The model says which rules a change of the partition count needs. A test that fails without a rule
shows that the code has it: `code_mutants.toml` says where the rule stands, and which test that is.
"""

import argparse
import asyncio
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.mutants import (
    KILLED,
    CodeMutant,
    MutantError,
    check_tests,
    judge_all,
    report,
)
from tests.model.rescale.scenarios import MUTANTS

TABLE: Final = Path(__file__).with_name("code_mutants.toml")
FIELDS: Final = ("file", "before", "after", "tests")


def read_table(text: str) -> dict[CodeMutant, list[str]]:
    """Read code_mutants.toml: each mutant with the tests that find it.

    Raises:
        MutantError: one is not in the model, or has other fields.
    """
    found: dict[CodeMutant, list[str]] = {}
    for name, fields in tomllib.loads(text).items():
        more = tuple((before, after) for before, after in fields.pop("more", ()))
        if name not in MUTANTS or sorted(fields) != sorted(FIELDS):
            raise MutantError(
                f"{name}: has {', '.join(fields)}; expected a mutant of the model, with "
                f"{', '.join(FIELDS)}"
            )
        known = MUTANTS[name]
        tests = fields.pop("tests")
        found[CodeMutant(name, known.invariant, known.mistake, more=more, **fields)] = tests
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the mutants; return 0 if all are killed, 1 if one is not, 2 if they cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.rescale.code_mutants")
    parser.add_argument("mutant", nargs="*", help="only these; none named: all")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (2)")
    given = parser.parse_args(arguments)
    table = read_table(TABLE.read_text(encoding="utf-8"))
    if unknown := {*given.mutant} - {mutant.name for mutant in table}:
        sys.stderr.write(f"no mutant {', '.join(sorted(unknown))}\n")
        return 2
    chosen: Mapping[CodeMutant, Sequence[str]] = {
        mutant: tests
        for mutant, tests in table.items()
        if not given.mutant or mutant.name in given.mutant
    }
    try:
        every = {test for tests in chosen.values() for test in tests}
        asyncio.run(check_tests(sorted(every), given.workers))
        outcomes = asyncio.run(judge_all(chosen, given.workers))
    except MutantError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{report(outcomes, as_json=False)}\n")
    return int(any(outcome.result != KILLED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
