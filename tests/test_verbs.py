"""A verb that docs/glossary.md defines has that one sense in the names of the product."""

import ast
from pathlib import Path

import pytest

from tests.syntax_trees import tree_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "operator" / "partq"
FORMS = {
    "look": {"look", "looks", "looked", "looking"},
    "notice": {"notice", "notices", "noticed", "noticing"},
    "settle": {"settle", "settles", "settled", "settling"},
    "take": {"take", "takes", "took", "taken", "taking"},
    "tell": {"tell", "tells", "told", "telling"},
    "drop": {"drop", "drops", "dropped", "dropping"},
}
REVIEWED = ROOT / "tests" / "verbs.txt"
"""The functions that have one of these verbs. Add one only if it has the verb's sense there."""


def functions_of(tree, before=""):
    """Return the functions below a node, each as `Class.function`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not isinstance(node, ast.ClassDef):
                yield f"{before}{node.name}"
            yield from functions_of(node, f"{before}{node.name}.")
        else:
            yield from functions_of(node, before)


def verbs_of(name):
    """Return the verbs of the glossary in the last part of a name."""
    words = {*name.rpartition(".")[2].split("_")}
    return {verb for verb, forms in FORMS.items() if words & forms}


def found():
    return {
        f"{verb} {path.relative_to(SOURCE).as_posix()} {name}"
        for path in SOURCE.rglob("*.py")
        for name in functions_of(tree_of(path))
        for verb in verbs_of(name)
    }


def test_the_glossary_defines_these_verbs():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Verbs of the code")
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert set(rows[2:]) == set(FORMS)


def test_a_function_has_a_verb_of_the_glossary_only_in_its_sense():
    """`tests/verbs.txt` only shrinks; docs/glossary.md has the words for anything else."""
    reviewed = REVIEWED.read_text(encoding="utf-8").splitlines()
    assert reviewed == sorted(set(reviewed)), "keep the lines in order, each once"
    added, gone = found() - set(reviewed), set(reviewed) - found()
    assert not added, f"docs/glossary.md has another verb for {sorted(added)}"
    assert not gone, f"remove from tests/verbs.txt: {sorted(gone)}"


@pytest.mark.parametrize(
    ("name", "verbs"),
    [
        ("Flow.take_credit", {"take"}),
        ("_settled_url", {"settle"}),
        ("Outlook.overlook", set()),
        ("Drop.intake", set()),
    ],
)
def test_a_verb_is_a_whole_word_of_the_function_s_name(name, verbs):
    assert verbs_of(name) == verbs
