"""CHANGELOG.md has the version of the project, and each change once, under a known heading."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""The headings of Keep a Changelog, in this order."""
MOST_CHARACTERS = 300
"""Of an entry. Who needs to know more finds it in the document that it names."""
VERSIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
VERSION = pytest.mark.parametrize("text", VERSIONS, ids=lambda text: text.split("\n")[0])


def test_the_newest_version_is_that_of_the_project_and_of_the_chart():
    first, *released = [text.split("\n")[0] for text in VERSIONS]
    assert first == "[Unreleased]"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", released[0])
    chart = yaml.safe_load((ROOT / "charts" / "partq" / "Chart.yaml").read_text("utf-8"))
    assert [str(chart[name]) for name in ("version", "appVersion")] == [version, version]


def test_versions_descend():
    found = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\S+)$", TEXT, re.MULTILINE)
    assert len(found) == len(VERSIONS) - 1
    for (*newer, later), (*older, earlier) in pairwise(found):
        assert [int(number) for number in newer] > [int(number) for number in older]
        assert later >= earlier


@VERSION
def test_changes_are_sorted_by_kind(text):
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert kinds == [kind for kind in KINDS if kind in kinds]


@VERSION
def test_an_entry_is_short_and_stands_once(text):
    entries = [
        re.sub(r"\s+", " ", entry)
        for entry in re.findall(r"^- .*\n(?:  .*\n)*", text, re.MULTILINE)
    ]
    assert len(set(entries)) == len(entries)
    shown = [re.sub(r"\]\([^)]*\)", "]", entry) for entry in entries]
    assert [entry for entry in shown if len(entry) > MOST_CHARACTERS] == []


def test_links_lead_to_files():
    linked = re.findall(r"\]\((?!http)([^)#]+)", TEXT)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
