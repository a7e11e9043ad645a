"""Files of an archive on this machine, or on a disk that all machines share."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from partq.errors import SettingsError


class LocalFiles:
    """Files below a folder. What is made or moved is synced to the disk, its folder too."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).expanduser().absolute()
        self.root = str(self._root)

    def url(self, path: str) -> str:
        """Return what Spark reads and writes."""
        # As it is: Hadoop takes %20 for what it says.
        return f"file://{self._root.as_posix()}/{path}"

    def path(self, path: str) -> Path:
        """Return where a file is."""
        return self._root / path

    def leads_out(self, path: str) -> bool:
        """Return whether symbolic links lead from a path to somewhere outside the folder."""
        return not (self._root / path).resolve().is_relative_to(self._root.resolve())

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: it is not there."""
        with self._naming(path):
            try:
                return (self._root / path).read_bytes()
            except FileNotFoundError:
                return None

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file, as hex; empty: it is not there."""
        with self._naming(path):
            try:
                with (self._root / path).open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            except FileNotFoundError:
                return ""

    def create(self, path: str, data: bytes) -> bool:
        """Make a file, durable and whole; False: one of that name is there, and stays."""
        with self._naming(path):
            target = self._root / path
            _make_folder(target.parent)
            draft = target.with_name(f".{target.name}.{uuid4().hex}")
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                # Unlike a rename, a link never replaces a file.
                os.link(draft, target)
            except FileExistsError:
                return False
            finally:
                draft.unlink(missing_ok=True)
            _sync(target.parent)
            return True

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        with self._naming(folder):
            try:
                names = os.listdir(self._root / folder)
            except FileNotFoundError:
                return []
            return sorted(name for name in names if not name.startswith("."))

    def walk(self, folder: str) -> list[tuple[str, int, int]]:
        """Return path, size and modification time in ms of every file below a folder."""
        found = []
        with self._naming(folder):
            for each in sorted((self._root / folder).rglob("*")):
                try:
                    info = each.stat()
                except FileNotFoundError:
                    continue  # removed meanwhile
                if each.is_file() and not each.name.startswith("."):
                    path = each.relative_to(self._root).as_posix()
                    found.append((path, info.st_size, info.st_mtime_ns // 1_000_000))
        return found

    def move(self, source: str, target: str) -> None:
        """Put a file in another place, where no file is; it is durable afterwards."""
        with self._naming(target):
            there = self._root / target
            _make_folder(there.parent)
            _sync(self._root / source)
            (self._root / source).rename(there)
            _sync(there.parent)

    def remove(self, path: str) -> None:
        """Delete a file or a folder with all that is in it; one that is not there is fine."""
        with self._naming(path):
            there = self._root / path
            if there.is_dir():
                shutil.rmtree(there)
            else:
                there.unlink(missing_ok=True)

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unusable_root(self.root, error, self._root / path) from error


def unusable_root(root: str, error: OSError, path: Path | str) -> SettingsError:
    """Return the error for a folder in which a file cannot be read or written."""
    return SettingsError(
        f"ROOT {root}: cannot be used: {path}: {error.strerror or error}; expected a folder that "
        "this user may read and write, with room left: change its rights, or give another ROOT"
    )


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that a crash of the machine keeps them."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
