"""Mistakes in the product, each found by the tests of one row alone: `make conformance-mutants`.

A mark says that a test shows a row. The test shows it only if it fails for a product that does not
do what the row asks. `mutants.toml` has such products, as changes of a text; here each is made in a
copy of the sources, and the tests that are marked for its row run against it.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.page import ROOT, Marks, read_marks

MUTANTS: Final = Path(__file__).with_name("mutants.toml")
SOURCES: Final = ROOT / "operator"
TIMEOUT_S: Final = 400.0
"""Of all tests of a mutant; a test that waits for ever ends by its own timeout before."""
ALL_TIMEOUT_S: Final = 1800.0
"""Of the tests of all mutants, without one."""
TEST_TIMEOUT_S: Final = 120
FIELDS: Final = ("row", "breaks", "file", "before", "after")
KILLED: Final = "killed"
SURVIVED: Final = "survived"
BROKEN: Final = "broken"
"""Its tests did not run to an end: the mutant is no program, or nothing can be said of it."""
RESULTS: Final = {0: SURVIVED, 1: KILLED}
"""By how pytest ends: 1 says that a test has failed; any other, that the tests did not run."""


class MutantError(Exception):
    """The mutants are not what can be run; each of the problems is a line."""


@dataclass(frozen=True, slots=True)
class CodeMutant:
    """A product with one mistake."""

    name: str
    row: str
    """The row that it does not do any more."""
    breaks: str
    """What it does, in a sentence."""
    file: str
    """The changed file, from `operator/partq`."""
    before: str
    """Stands in the file once."""
    after: str
    more: tuple[tuple[str, str], ...] = ()
    """Further changes of the file, each as `before` and `after`: of a rule that stands twice."""

    def apply(self, sources: Path) -> None:
        """Make the mistake in a copy of `operator`.

        Raises:
            MutantError: the text is not there, or more than once.
        """
        path = sources / "partq" / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for before, after in ((self.before, self.after), *self.more):
            if (count := text.count(before)) != 1:
                raise MutantError(
                    f"{self.name}: does not apply: `before` is in {self.file} {count} times, "
                    "expected once; change the mutant with the code"
                )
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests of a row said of a mutant."""

    mutant: CodeMutant
    result: str
    """`KILLED`, `SURVIVED` or `BROKEN`."""
    seconds: float
    told: str
    """The last lines of pytest, if there is something to be looked at."""


def read_mutants(text: str) -> list[CodeMutant]:
    """Read mutants.toml, in its order.

    Raises:
        MutantError: a field is missing or unknown, or a change changes nothing; all are named.
    """
    mutants, problems = [], []
    for name, fields in tomllib.loads(text).items():
        if sorted(fields) != sorted(FIELDS):
            problems.append(f"{name}: has {', '.join(fields)}; expected {', '.join(FIELDS)}")
            continue
        mutant = CodeMutant(name, **fields)
        if mutant.before == mutant.after or not mutant.breaks.endswith("."):
            problems.append(f"{name}: changes nothing, or `breaks` is no sentence")
        mutants.append(mutant)
    if problems:
        raise MutantError("\n".join(problems))
    return mutants


def marked_tests(mutant: CodeMutant, marks: Marks) -> list[str]:
    """Return the tests of a mutant's row, as pytest names them; those of e2e need a cluster.

    Raises:
        MutantError: it has none.
    """
    found = [
        f"{test.path}::{test.name}"
        for test in marks.get(mutant.row, ())
        if test.path.startswith("tests/")
    ]
    if not found:
        raise MutantError(f"{mutant.name}: no test of tests/ is marked for {mutant.row}")
    return found


def check(mutants: Sequence[CodeMutant], marks: Marks, sources: Path = SOURCES) -> None:
    """See that each mutant applies, and that its row has tests; nothing is changed.

    Raises:
        MutantError: one does not, or has none; all are named.
    """
    problems = []
    for mutant in mutants:
        try:
            marked_tests(mutant, marks)
            check_applies([mutant], sources)
        except MutantError as error:
            problems.append(str(error))
    if problems:
        raise MutantError("\n".join(problems))


def check_applies(mutants: Iterable[CodeMutant], sources: Path = SOURCES) -> None:
    """See that each mutant applies; nothing is changed.

    Raises:
        MutantError: one does not; all are named.
    """
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for mutant in mutants:
            copy = Path(folder) / "partq" / mutant.file
            copy.parent.mkdir(parents=True, exist_ok=True)
            if (original := sources / "partq" / mutant.file).is_file():
                shutil.copy(original, copy)
            try:
                mutant.apply(Path(folder))
            except MutantError as error:
                problems.append(str(error))
    if problems:
        raise MutantError("\n".join(problems))


async def run_tests(
    tests: Sequence[str], sources: Path, *more: str, timeout_s: float = TIMEOUT_S
) -> tuple[int, str]:
    """Run tests against a copy of `operator`; return the exit status of pytest and its output.

    The status is -1 when they did not end in time.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
               "--timeout", str(TEST_TIMEOUT_S), *more, *tests]  # fmt: skip
    # A worker of pytest may have started this: the tests are none of its own.
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**own, "PYTHONPATH": str(sources), "TMPDIR": scratch},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # so that its servers end with it
        )
        try:
            async with asyncio.timeout(timeout_s):
                output, _ = await process.communicate()
        except TimeoutError:
            return -1, f"the tests took more than {timeout_s:g} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    return process.returncode or 0, output.decode(errors="replace")


def copy_sources(folder: str) -> Path:
    """Copy `operator` with its compiled files, which only the changed file does without."""
    return Path(shutil.copytree(SOURCES, Path(folder) / "operator"))


async def judge(mutant: CodeMutant, tests: Sequence[str]) -> Outcome:
    """Run the tests of a mutant's row against it."""
    begun_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        sources = copy_sources(folder)
        mutant.apply(sources)
        status, output = await run_tests(tests, sources)
    result = RESULTS.get(status, BROKEN)
    told = "" if result == KILLED else "\n".join(output.strip().splitlines()[-12:])
    return Outcome(mutant, result, time.monotonic() - begun_at, told)


async def check_tests(tests: Sequence[str], workers: int) -> None:
    """See that the tests pass for the product as it is: else every mutant would be killed.

    Raises:
        MutantError: they do not.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        sources = copy_sources(folder)
        status, output = await run_tests(
            tests, sources, "-n", str(workers), "--dist", "loadfile", timeout_s=ALL_TIMEOUT_S
        )
    if status:
        last = "\n".join(output.strip().splitlines()[-12:])
        raise MutantError(f"the tests do not pass without a mutant:\n{last}")


async def judge_all(tests: Mapping[CodeMutant, Sequence[str]], workers: int) -> list[Outcome]:
    """Run the tests of each mutant, some at a time; say what came of it as soon as it is known."""
    places = asyncio.Semaphore(workers)

    async def one(mutant: CodeMutant) -> Outcome:
        async with places:
            outcome = await judge(mutant, tests[mutant])
        line = f"{outcome.result:8} {mutant.row:8} {mutant.name} ({outcome.seconds:.0f} s)"
        sys.stderr.write(f"{line}\n")
        return outcome

    return list(await asyncio.gather(*map(one, tests)))


def report(outcomes: Sequence[Outcome], *, as_json: bool) -> str:
    """Return the result: a line and what has to be looked at, or JSON."""
    counts = Counter(outcome.result for outcome in outcomes)
    if as_json:
        rows = [
            {"name": each.mutant.name, "row": each.mutant.row, "breaks": each.mutant.breaks,
             "result": each.result, "seconds": round(each.seconds, 1)}
            for each in outcomes
        ]  # fmt: skip
        return json.dumps({"mutants": rows, "counts": counts}, indent=2)
    lines = [
        f"{each.mutant.name} ({each.mutant.row}) {each.result}: {each.mutant.breaks}\n{each.told}\n"
        for each in outcomes
        if each.result != KILLED
    ]
    lines.append(
        f"{len(outcomes)} mutants of {len({each.mutant.row for each in outcomes})} rows: "
        + ", ".join(f"{counts[result]} {result}" for result in (KILLED, SURVIVED, BROKEN))
    )
    return "\n".join(lines)


def mutants_parser(about: str) -> argparse.ArgumentParser:
    """Return the options that every run of mutants takes; `about`: what is run."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument(
        "--only-mutants", action="store_true", help="do not run the tests without a mutant before"
    )
    return parser


def run_mutants(
    choose: Callable[[], Mapping[CodeMutant, Sequence[str]]], given: argparse.Namespace
) -> int:
    """Run mutants; return 0 if all are killed, 1 if one is not, 2 if they cannot be run.

    Args:
        choose: returns the mutants, each with its tests; raises MutantError.
        given: the options of `mutants_parser`.
    """
    try:
        tests = choose()
        if not given.only_mutants:
            every = {test for found in tests.values() for test in found}
            asyncio.run(check_tests(sorted(every), given.workers))
        outcomes = asyncio.run(judge_all(tests, given.workers))
    except MutantError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{report(outcomes, as_json=given.json)}\n")
    return int(any(outcome.result != KILLED for outcome in outcomes))


def choose_rows(rows: Sequence[str]) -> dict[CodeMutant, Sequence[str]]:
    """Return the mutants of some rows, each with the tests of its row; no row named: of all.

    Raises:
        MutantError: a row has none, or one cannot be run.
    """
    mutants = read_mutants(MUTANTS.read_text(encoding="utf-8"))
    known = {mutant.row for mutant in mutants}
    if missing := {*rows} - known:
        raise MutantError(
            f"no mutant of {', '.join(sorted(missing))}; there are those of "
            f"{', '.join(sorted(known))}"
        )
    mutants = [mutant for mutant in mutants if not rows or mutant.row in rows]
    marks = read_marks(ROOT)
    check(mutants, marks)
    return {mutant: marked_tests(mutant, marks) for mutant in mutants}


def main(arguments: Sequence[str]) -> int:
    """Run the mutants of the arguments; return as `run_mutants`."""
    parser = mutants_parser(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--row", action="append", help="only the mutants of this row; repeatable")
    given = parser.parse_args(arguments)
    return run_mutants(lambda: choose_rows(given.row or ()), given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
