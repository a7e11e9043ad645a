"""What MkDocs lacks for this repository: pages outside docs/, files they link to, GitHub's anchors.

The pages are written to be read in the repository as well, so they link to README.md and to code by
relative paths, and to headings by the anchors of GitHub.
"""

import re
from os.path import normpath
from pathlib import Path
from posixpath import relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = "docs/"
PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "e2e/README.md")},
}
"""Pages outside docs/, each with its place in the site."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")


def slugify(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors of GitHub."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": slugify}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and the files that any page links to."""
    root = _root(config)
    for source, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(root / source)))
    linked = {
        _target(root, file, link[0])
        for file in files.documentation_pages()
        for link in _LINK.finditer(file.content_string)
    }
    for target in sorted(linked):
        if (root / target).is_file() and files.get_file_from_path(_place(target)) is None:
            files.append(File.generated(config, _place(target), abs_src_path=str(root / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point links at the places of the site; what leads nowhere stays, and MkDocs reports it."""
    root = _root(config)
    folder = page.file.src_uri.rpartition("/")[0] or "."

    def placed(link: re.Match[str]) -> str:
        target = _target(root, page.file, link[0])
        return relpath(_place(target), folder) if (root / target).exists() else link[0]

    return _LINK.sub(placed, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _target(root: Path, file: File, link: str) -> str:
    """Return what a link of a page leads to, as a path of the repository."""
    assert file.abs_src_path is not None  # noqa: S101 - every page is a file of the repository
    return normpath(Path(file.abs_src_path).relative_to(root).parent / link)


def _place(target: str) -> str:
    """Return where a file of the repository is in the site."""
    return PAGES.get(target, target.removeprefix(DOCS))
