"""Reads the audit's page as a browser would, and more strictly."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br"}
_ADDRESSES = {"href", "xlink:href", "src", "srcset", "action", "data", "poster"}
_FETCHES = re.compile(r"url\(\s*[\"']?(?!#)|@import")


@dataclass
class Page:
    """What the page holds."""

    title: str = ""
    headings: list[str] = field(default_factory=list)
    elements: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    """What a browser would fetch."""
    figures: list[str] = field(default_factory=list)
    """What each drawing says of itself, in words."""
    tables: list[list[list[str]]] = field(default_factory=list)

    def rows_of(self, column):
        """Return the rows of the first table whose first column has this name, as mappings."""
        for names, *rows in self.tables:
            if names[0] == column:
                return [dict(zip(names, row, strict=True)) for row in rows]
        return []


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.page = Page()
        self.open = []
        self.texts = []

    def handle_startendtag(self, tag, attrs):
        self._look(tag, dict(attrs))

    def handle_starttag(self, tag, attrs):
        self._look(tag, dict(attrs))
        if tag in _VOID:
            self.texts = [[*each, "\n"] for each in self.texts]
            return
        self.open.append(tag)
        self.texts.append([])
        if tag == "table":
            self.page.tables.append([])
        if tag == "tr":
            self.page.tables[-1].append([])

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a beginning, line {self.getpos()}"
        assert self.open[-1] == tag, f"</{tag}> ends <{self.open[-1]}>, line {self.getpos()}"
        self.open.pop()
        text = "".join(self.texts.pop()).strip()
        if tag == "title" and "svg" not in self.open:
            self.page.title = text
        if tag in ("h1", "h2", "h3"):
            self.page.headings.append(text)
        if tag in ("td", "th"):
            self.page.tables[-1][-1].append(text)

    def handle_data(self, data):
        for each in self.texts:
            each.append(data)
        if self.open and self.open[-1] == "style":
            self.page.addresses += _FETCHES.findall(data)

    def _look(self, tag, attributes):
        self.page.elements.add(tag)
        if "id" in attributes:
            self.page.ids.append(attributes["id"])
        for name, value in attributes.items():
            if name in _ADDRESSES and not value.startswith("#"):
                self.page.addresses.append(value)
            self.page.addresses += _FETCHES.findall(value or "")
        if tag == "svg":
            assert attributes["role"] == "img"
            self.page.figures.append(attributes["aria-label"])


def read_page(text):
    """Return what a page holds; each element must end where it began."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader.page
