"""Documents are plain technical English, on lines that fit beside code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WIDTH = 100

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
