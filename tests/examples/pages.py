"""The code blocks of README.md and docs/: what a reader copies."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """A code block: its page, the number of its first line, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, as editors read it."""
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return the blocks in one of some languages, page by page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start(2)) + 1
            found.append(Block(page.name, line, match[1], match[2]))
    return [block for block in found if block.language in languages]


def programs(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return [block.text for block in blocks("python") if block.page == page]


def program_blocks(page: str, heading: str) -> list[str]:
    """Return the Python blocks of a page below a heading, up to the next heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (part,) = re.findall(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE
    )
    return re.findall(r"^```python\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)


def program(page: str, heading: str) -> str:
    """Return the only one of them."""
    (found,) = program_blocks(page, heading)
    return found
