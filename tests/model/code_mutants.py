"""The mistakes of the model, made in the code: `make code-mutants`.

The models say which rules a change of the partition count needs, and which ones the deliveries of
keys that members share. A test that fails without a rule shows that the code has it:
`code_mutants.toml`, beside each model, says where the rule stands, and which test that is.
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance.mutants import CodeMutant, MutantError, mutants_parser, run_mutants
from tests.model.delivery.scenarios import MUTANTS as DELIVERY_MUTANTS
from tests.model.mutant import Mutant
from tests.model.rescale.scenarios import MUTANTS as RESCALE_MUTANTS

TABLES: Final[dict[Path, dict[str, Mutant]]] = {
    Path(__file__).parent / "rescale" / "code_mutants.toml": RESCALE_MUTANTS,
    Path(__file__).parent / "delivery" / "code_mutants.toml": DELIVERY_MUTANTS,
}
"""The mutants of each model, by the table that makes them in the code."""
FIELDS: Final = ("file", "before", "after", "tests")
BEYOND: Final = "beyond the model"
"""Stands for the invariant of a mistake in a rule that the model leaves out."""


def read_table(text: str, model: dict[str, Mutant]) -> dict[CodeMutant, list[str]]:
    """Read a code_mutants.toml: each mutant of a model with the tests that find it.

    Raises:
        MutantError: one is neither in the model nor says what it breaks, or has other fields.
    """
    found: dict[CodeMutant, list[str]] = {}
    for name, fields in tomllib.loads(text).items():
        more = tuple((before, after) for before, after in fields.pop("more", ()))
        breaks = fields.pop("breaks", "")
        if (name in model) == bool(breaks) or sorted(fields) != sorted(FIELDS):
            raise MutantError(
                f"{name}: has {', '.join(fields)}; expected a mutant of the model, or `breaks`, "
                f"with {', '.join(FIELDS)}"
            )
        row = BEYOND if breaks else model[name].invariant
        tests = fields.pop("tests")
        mistake = breaks or model[name].mistake
        found[CodeMutant(name, row, mistake, more=more, **fields)] = tests
    return found


def read_tables() -> dict[CodeMutant, list[str]]:
    """Read all tables.

    Raises:
        MutantError: as `read_table`.
    """
    return {
        mutant: tests
        for path, model in TABLES.items()
        for mutant, tests in read_table(path.read_text(encoding="utf-8"), model).items()
    }


def choose(names: Sequence[str]) -> dict[CodeMutant, list[str]]:
    """Return the mutants of these names, each with its tests; none named: all.

    Raises:
        MutantError: there is none of a name.
    """
    table = read_tables()
    if unknown := {*names} - {mutant.name for mutant in table}:
        raise MutantError(f"no mutant {', '.join(sorted(unknown))}")
    return {mutant: tests for mutant, tests in table.items() if not names or mutant.name in names}


def main(arguments: Sequence[str]) -> int:
    """Run the mutants of the arguments; return as `run_mutants`."""
    parser = mutants_parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("mutant", nargs="*", help="only these; none named: all")
    given = parser.parse_args(arguments)
    return run_mutants(lambda: choose(given.mutant), given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
