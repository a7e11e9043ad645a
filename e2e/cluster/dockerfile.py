"""What a Dockerfile says of its stages: which need which, and which last. Pure text."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_LASTING = "dependencies"
_FROM = re.compile(r"^FROM (?P<source>\S+)(?: AS (?P<name>\S+))?$", re.MULTILINE)
_COPY = re.compile(r"^COPY (?P<words>.+)$", re.MULTILINE)
_COPIED_FROM = re.compile(r"--from=(?P<source>\S+)")
_LAST = ""
_KEY_LENGTH = 16


class Dockerfile:
    """The stages of a Dockerfile: their text without comments, by their names.

    A stage is called lasting if its name ends in `dependencies`: it takes most of the time and
    changes seldom, so that it is built under a name made of all that it is built from, once.
    """

    def __init__(self, text: str) -> None:
        text = "".join(
            line for line in text.splitlines(keepends=True) if not line.startswith("#")
        ).replace("\\\n", "")
        starts = [match.start() for match in _FROM.finditer(text)]
        self._head = text[: starts[0]]
        self._stages: dict[str, str] = {}
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            found = _FROM.match(text, start)
            self._stages[(found and found["name"]) or _LAST] = text[start:end]

    def lasting(self, target: str | None) -> list[str]:
        """Return the lasting stages that a stage is made of, each after those that it needs.

        `target`: the stage; None: the last one.
        """
        needed = self._needed(_LAST if target is None else target)
        return [name for name in needed if name.endswith(_LASTING)]

    def key(self, stage: str, context: Path, base: str) -> str:
        """Return a name for what a stage is built from: another if anything of it is another.

        Args:
            stage: its name.
            context: the folder that it copies from.
            base: what names the content of the image that all begins with.
        """
        digest = hashlib.sha256(f"{base}\n{self._head}".encode())
        for name in self._needed(stage):
            text = self._stages[name]
            digest.update(text.encode())
            for match in _COPY.finditer(text):
                words = match["words"].split()
                if not _COPIED_FROM.match(words[0]):
                    for word in words[:-1]:
                        _add_content(digest, context, context / word)
        return digest.hexdigest()[:_KEY_LENGTH]

    def text(self, target: str | None, images: Mapping[str, str]) -> str:
        """Return a Dockerfile that ends with a stage; some of those it needs are there as images.

        Args:
            target: the stage; None: the last one.
            images: stage → image that is taken for it.
        """
        last = _LAST if target is None else target
        parts = [self._head]
        for name in self._needed(last, images):
            part = _FROM.sub(lambda found: _with_source(found, images), self._stages[name])
            parts.append(_COPIED_FROM.sub(lambda found: _with_source(found, images), part))
        return "".join(parts)

    def _needed(self, stage: str, images: Mapping[str, str] | None = None) -> list[str]:
        """Return a stage and those it needs, each after its own; not what is there as images."""
        found: dict[str, None] = {}

        def add(name: str) -> None:
            if name in self._stages and name not in found and name not in (images or {}):
                for source in _sources(self._stages[name]):
                    add(source)
                found[name] = None

        add(stage)
        return list(found)


def _sources(text: str) -> Iterator[str]:
    for pattern in (_FROM, _COPIED_FROM):
        yield from (match["source"] for match in pattern.finditer(text))


def _with_source(found: re.Match[str], images: Mapping[str, str]) -> str:
    source = found["source"]
    start, end = found.start("source") - found.start(), found.end("source") - found.start()
    return found[0][:start] + images.get(source, source) + found[0][end:]


def _add_content(digest: "hashlib._Hash", context: Path, path: Path) -> None:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if not file.is_dir():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(context)} {content}\n".encode())
