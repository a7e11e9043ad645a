"""The site of `make docs`: what fails it, and how it finds pages and files outside docs/."""

import logging
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.utils.yaml import yaml_load

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "# First\n\n[page](docs/page.md#a-b) [code](docs/../program.py)\n",
    "CHANGELOG.md": "# Changes\n",
    "CONTRIBUTING.md": "# Contributing\n",
    "SECURITY.md": "# Security\n",
    "e2e/README.md": "# Stories\n",
    "docs/page.md": "# Page\n\n## A `b`\n\n[first](../README.md) [code](../program.py)\n",
    "docs/site.css": "",
    "program.py": "pass\n",
}


@pytest.fixture
def site(tmp_path):
    """A repository with pages of all kinds and our configuration; return what builds its site."""
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = yaml_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    names = ["index.md", "page.md", *(name for name in PAGES if name[0] in "CSe")]
    config |= {"hooks": [str(ROOT / "scripts" / "docs_site.py")], "nav": names, "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def built():
        build(load_config(str(tmp_path / "mkdocs.yml")))
        return tmp_path / "site"

    yield built
    logging.getLogger("mkdocs").handlers.clear()


def test_pages_and_files_outside_docs_are_in_it(site):
    built = site()
    first = (built / "index.html").read_text("utf-8")
    assert 'href="page.html#a-b"' in first
    assert 'href="program.py"' in first
    page = (built / "page.html").read_text("utf-8")
    assert 'href="index.html"' in page
    assert 'href="program.py"' in page
    assert (built / "program.py").read_text("utf-8") == "pass\n"
    assert (built / "e2e" / "index.html").is_file()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("docs/page.md", "# Page\n\n## A b\n\n[x](gone.md)\n", id="a dead link"),
        pytest.param("docs/page.md", "# Page\n\n## A b\n\n[x](../gone.py)\n", id="a file"),
        pytest.param("docs/page.md", "# Page\n\n## A c\n", id="an anchor"),
        pytest.param("docs/other.md", "# Other\n", id="a page without a place"),
    ],
)
def test_what_is_wrong_fails_it(site, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(Abort, match="Aborted with 1 warnings in strict mode"):
        site()


def test_it_needs_no_other_host(site):
    """A page that is read without a network looks as it should."""
    text = (site() / "index.html").read_text("utf-8")
    assert 'src="http' not in text
    assert '<link rel="stylesheet" href="http' not in text
