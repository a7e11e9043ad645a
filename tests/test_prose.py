"""Documents are plain technical English, on lines that fit beside code."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WIDTH = 100

IDIOMS = {
    r"shall": "will, has to, or the plain verb",
    r"(?:is|are) none": "say what it is not",
    r"of (?:its|their|one's|his|her|our|your|my) own": "separate, or its",
    r"(?:come|comes|coming|came) again": "is redelivered, returns",
    r"(?:told|tell|tells|telling) of": "reports, names",
    r"anew": "again",
    r"on record": "recorded",
    r"roads?": "path",
    r"for ever": "without end",
    r"as against": "as opposed to",
    r"[Ww]hoever": "a user, a process: name it",
    r"(?:^|(?<=[.:;|]) ?)Who (?!.*\?)": "a claimer, a reader: name who it is",
    r"(?:and|but|of|by|for|to|from|with|than|or|,) who (?:\w+s|\w+ed|has|have|is)": "the same",
}
"""What reads as translated, and what to write. A relative clause has a noun that it belongs to."""

PAGE = pytest.mark.parametrize(
    "page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES]
)


def prose(page):
    """Return the lines of a page that are no code, each with its number."""
    found, is_code = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            found.append((number, line))
    return found


@PAGE
def test_lines_have_at_most_100_columns(page):
    """But for tables, code, and what cannot be broken: one long word or piece of code."""
    long = [
        number
        for number, line in prose(page)
        if len(line) > WIDTH
        and not line.lstrip().startswith("|")
        and not line.startswith("    ")
        and " " in re.sub(r"`[^`]*`", "", line.strip())
    ]
    assert not long, f"{page.name}: break the lines {long}"


def idioms(text):
    """Return the idioms in a text, each with what to write."""
    plain = re.sub(r"`[^`]*`", "``", text)
    found = []
    for idiom, better in IDIOMS.items():
        pattern = idiom if idiom.startswith("(?:^") else rf"(?<![\w-])(?:{idiom})(?![\w-])"
        found += [f"{each[0].strip()!r}: {better}" for each in re.finditer(pattern, plain)]
    return found


@PAGE
def test_sentences_are_plain(page):
    if page.name == "conformance.md":
        return  # it is made of the names of tests
    paragraphs = re.split(r"\n\s*\n", "\n".join(line for _, line in prose(page)))
    found = [each for text in paragraphs for each in idioms(" ".join(text.split()))]
    assert not found, f"{page.name}: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "The broker shall answer.",
        "Who claims reads the record first.",
        "It is sent by who holds it.",
        "It has a queue of its\nown.",
        "The message comes\nagain.",
    ],
)
def test_an_idiom_is_found(text):
    assert idioms(" ".join(text.split()))


def test_plain_sentences_are_not():
    text = (
        "A member that claims `shall` is found. Who owns it? Users who publish may come against it."
    )
    assert idioms(text) == []


PRODUCT = ROOT / "operator" / "partq"
IN_CODE = ("shall", "anew", "on record", "roads?", "for ever", "as against")
"""Of the idioms, those that are gone from docstrings and comments: the list only grows."""
DESCRIPTIONS = {"resources/models.py", "resources/redelivery.py", "wire/calls/bodies.py"}
"""Their docstrings are descriptions of resource kinds and of the HTTP API, which are released."""


def remarks(path):
    """Return the docstrings and comments of a module, each with its line."""
    text = path.read_text(encoding="utf-8")
    found = [
        (node.lineno, str(node.value.value))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [*found, *((t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT)]


def test_docstrings_and_comments_have_no_such_idioms():
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(IN_CODE)})(?![\w-])")
    found = [
        f"{path.relative_to(PRODUCT)}:{line}: {each[0]!r}"
        for path in sorted(PRODUCT.rglob("*.py"))
        if str(path.relative_to(PRODUCT)) not in DESCRIPTIONS
        for line, text in remarks(path)
        for each in pattern.finditer(re.sub(r"`[^`]*`", "``", " ".join(text.split())))
    ]
    assert not found, "see IDIOMS for better words"


def anchors(page):
    """Return the anchors of a page, as GitHub makes them of its headings."""
    found = set(re.findall(r'<a id="([^"]+)">', page.read_text(encoding="utf-8")))
    for _, line in prose(page):
        if heading := re.match(r"#+ (.+)", line):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(text.replace(" ", "-"))
    return found


@PAGE
def test_links_lead_somewhere(page):
    text = "\n".join(line for _, line in prose(page))
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    assert not dead, f"{page.name}: {dead}"
