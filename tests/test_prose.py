"""Documents are plain technical English, on lines that fit beside code."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.syntax_trees import tree_of

ROOT = Path(__file__).parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(
        page
        for folder in ("docs", "e2e", "examples")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ),
]
WIDTH = 100
LONGEST = 30
"""Words of a sentence."""
LIST_COMMAS = 5

IDIOMS = {
    r"shall": "will, has to, or the plain verb",
    r"(?:is|are) none": "say what it is not",
    r"of (?:its|their|one's|his|her|our|your|my) own": "separate, or its",
    r"(?:come|comes|coming|came) again": "is redelivered, returns",
    r"(?:told|tell|tells|telling) of": "reports, names",
    r"anew": "again",
    r"heed|heeds|heeded": "follow, read, use",
    r"upon": "on",
    r"on record": "recorded",
    r"roads?": "path",
    r"for ever": "without end",
    r"as against": "as opposed to",
    r"(?:look|looks|looked|looking) whether": "check whether",
    r"(?:make|makes|made) again": "created again",
    r"(?:got |there is |has )?none of this name": "not found, or does not exist",
    r"at the most": "at most",
    r"in hand": "in flight, being processed, held",
    r"(?:for|after|within) so (?:long|many)(?! as)": "for this long, after this many",
    r"speaks? no": "does not speak",
    r"is another's": "belongs to another",
    r"(?<!here )(?:is|are) no (?:JSON|UTF-8|URL|text|file|object|list|dead letters?)": "is not",
    r"[Ww]hoever": "a user, a process: name it",
    r"(?:^|(?<=[.:;|]) ?)Who (?![^.]*\?)": "a claimer, a reader: name who it is",
    r"(?:and|but|of|by|for|to|from|with|than|or|,) who (?:\w+s|\w+ed|has|have|is)": "the same",
    r"(?<=[:;] )who(?! may )": "which member, which broker, a caller that: name it",
    r"(?:it|that|this|so) is who": "the same",
}
"""What reads as translated, and what to write. A relative clause has a noun that it belongs to."""

PAGE = pytest.mark.parametrize(
    "page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES]
)


def prose(page):
    """Return the lines of a page that are no code, each with its number; of releases the next."""
    found, is_code = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if page == CHANGELOG and re.match(r"## \[\d", line):
            break
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            found.append((number, line))
    return found


@PAGE
def test_lines_have_at_most_100_columns(page):
    """But for tables, code, and what cannot be broken: one long word or piece of code.

    Lines of the changelog may be longer: it is merged line by line, and a line that is wrapped
    again would be there twice.
    """
    long = [
        number
        for number, line in prose(page)
        if len(line) > WIDTH
        and page != CHANGELOG
        and not line.lstrip().startswith("|")
        and not line.startswith("    ")
        and " " in re.sub(r"`[^`]*`", "", line.strip())
    ]
    assert not long, f"{page.name}: break the lines {long}"


PATTERNS = {
    re.compile(idiom if idiom.startswith("(?:^") else rf"(?<![\w-])(?:{idiom})(?![\w-])"): better
    for idiom, better in IDIOMS.items()
}
ANYWHERE = re.compile(
    "|".join(each.pattern for each in PATTERNS if each.pattern.startswith("(?:^"))
    + r"|(?<![\w-])(?:"
    + "|".join(f"(?:{idiom})" for idiom in IDIOMS if not idiom.startswith("(?:^"))
    + r")(?![\w-])"
)
"""Matches where one of them does: most texts are searched once, and not once for each idiom."""


def idioms(text):
    """Return the idioms in a text, each with what to write."""
    plain = re.sub(r"`[^`]*`", "``", text)
    if not ANYWHERE.search(plain):
        return []
    return [
        f"{each[0].strip()!r}: {better}"
        for pattern, better in PATTERNS.items()
        for each in pattern.finditer(plain)
    ]


@PAGE
def test_sentences_are_plain(page):
    paragraphs = re.split(r"\n\s*\n", "\n".join(line for _, line in prose(page)))
    found = [each for text in paragraphs for each in idioms(" ".join(text.split()))]
    assert not found, f"{page.name}: {found}"


def sentences(page):
    """Return the sentences of a page, cut at colons and semicolons, too, without code and links."""
    texts, text = [], []
    for line in [*(line.strip() for _, line in prose(page)), ""]:
        if not line or re.match(r"\||#|(?:-|\*|\d+\.) ", line):
            texts.append(" ".join(text))
            text = []
        if line.startswith("|"):
            texts += line.strip("|").split("|")
        elif not line.startswith("#"):
            text.append(re.sub(r"^(?:-|\*|\d+\.) ", "", line))
    for each in texts:
        plain = re.sub(r"`[^`]*`", "``", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each))
        yield from re.split(r"(?<=[.!?;:])[)\"*]*\s+", re.sub(r" \([^()]*\)", "", plain))


@PAGE
def test_paragraphs_begin_with_a_sentence(page):
    """Also below a block of code, which is no subject."""
    lines = dict(prose(page))
    begun = [
        number
        for number, line in lines.items()
        if re.match(r"(?!partq\b)[a-z]", line) and not lines.get(number - 1, "").strip()
    ]
    assert not begun, f"{page.name}: the lines {begun} lack the beginning of their sentence"


@PAGE
def test_sentences_are_short(page):
    """A list may be longer: what has as many commas is one."""
    long = [
        each
        for each in sentences(page)
        if len(each.split()) > LONGEST and each.count(",") < LIST_COMMAS
    ]
    assert not long, f"{page.name}: {long}"


@pytest.mark.parametrize(
    "text",
    [
        "The broker shall answer.",
        "Who claims reads the record first.",
        "It is sent by who holds it.",
        "The members are listed; who is missing is unknown.",
        "It is refused: who sends one believes in it.",
        "Among several it is who has most of it.",
        "It has a queue of its\nown.",
        "The message comes\nagain.",
    ],
)
def test_an_idiom_is_found(text):
    assert idioms(" ".join(text.split()))


def test_plain_sentences_are_not():
    text = (
        "A member that claims `shall` is found. Who owns it? Users who publish may come against it."
        " Tokens and roles: who may call."
    )
    assert idioms(text) == []


CODE = ("operator/partq", "examples", "scripts", "e2e", "crds", "charts", ".github", ".ci")
COMMENT = re.compile(r"^[ \t]*(?:#|//|/?\*|--|\{\{-? */\*)?[ \t]*", re.MULTILINE)
SOURCES = sorted(
    path
    for folder in CODE
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".lua", ".mjs", ".sh", ".yaml", ".yml", ".tpl", ".txt", ".md"}
)


def literals(path):
    """Return the texts of a Python module, each with its line: literals, docstrings, comments."""
    text = path.read_text(encoding="utf-8")
    tree = tree_of(path)
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    pieces = {id(piece) for node in formatted for piece in ast.walk(node) if piece is not node}
    for node in formatted:
        if id(node) not in pieces:
            parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
            yield node.lineno, "".join(map(str, parts))
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in pieces:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def paragraphs(path):
    """Return the paragraphs of another file, each with its line; comments have lost their marks."""
    plain, line = COMMENT.sub("", path.read_text(encoding="utf-8")), 1
    for text in plain.split("\n\n"):
        yield line, text
        line += text.count("\n") + 2


@pytest.mark.parametrize("folder", CODE)
def test_texts_in_code_have_no_idioms(folder):
    """Command output, log lines, errors, Events, descriptions, comments: people read them all."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {each}"
        for path in SOURCES
        if path.is_relative_to(ROOT / folder)
        for line, text in (literals if path.suffix == ".py" else paragraphs)(path)
        for each in idioms(" ".join(text.split()))
    ]
    assert not found, "\n".join(found)


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
