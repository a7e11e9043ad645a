"""The files of an archive: on this machine, or wherever Hadoop's file systems reach.

Two operations carry the archive's promises. `create` makes a file that was not there, whole or not
at all, and says when somebody else was faster. `move` puts a file in its place, and returns when it
is durable. Nothing else has to be atomic.
"""

from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from partq.errors import SettingsError
from partq.excerpts import excerpt
from partq.pipeline.storage.local_files import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ROOT_CHARS = 1024


class Files(Protocol):
    """Files below one root; every path is relative to it."""

    root: str

    def url(self, path: str) -> str:
        """Return what Spark reads and writes."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: it is not there."""

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file, as hex; empty: it is not there."""

    def create(self, path: str, data: bytes) -> bool:
        """Make a file, durable and whole; False: one of that name is there, and stays."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none where there is no such folder."""

    def walk(self, folder: str) -> list[tuple[str, int, int]]:
        """Return path, size and modification time in ms of every file below a folder."""

    def move(self, source: str, target: str) -> None:
        """Put a file in another place, where no file is; it is durable afterwards."""

    def remove(self, path: str) -> None:
        """Delete a file or a folder with all that is in it; one that is not there is fine."""


def open_files(spark: "SparkSession", root: str) -> Files:
    """Return the files below `root`: a path, or a URL that this Spark can write.

    Raises:
        SettingsError: Spark knows no file system of that kind, or the text is not a URL.
    """
    parts = _checked(root)
    if parts.scheme == "file":
        return _at_file_url(root, parts)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if not parts.scheme and str(hadoop.get("fs.defaultFS", "file:///")).startswith("file:"):
        return LocalFiles(root)
    # Only here: jobs without Spark open local files alone.
    from partq.pipeline.storage.hadoop_files import HadoopFiles

    return HadoopFiles(spark, root)


def open_local_files(root: str) -> LocalFiles:
    """Return the files below a path of this machine, for jobs without Spark.

    Raises:
        SettingsError: `root` is a URL of other storage, or no path.
    """
    parts = _checked(root)
    if parts.scheme == "file":
        return _at_file_url(root, parts)
    if parts.scheme:
        raise SettingsError(
            f"ROOT {root}: got a URL, and without Spark only paths of this machine can be read and "
            "written; use --engine spark, or give a path"
        )
    return LocalFiles(root)


def _checked(root: str) -> SplitResult:
    if not root or len(root) > MAX_ROOT_CHARS or not root.isprintable():
        raise SettingsError(
            f"ROOT {excerpt(root)!r}: expected a path or a URL that Spark can write"
        )
    if special := set(root) & set("*?[]{}\\"):
        raise SettingsError(
            f"ROOT {root}: got {min(special)!r} in it, which Spark takes for a pattern; choose "
            "another name"
        )
    return urlsplit(root)


def _at_file_url(root: str, parts: SplitResult) -> LocalFiles:
    if parts.netloc not in ("", "localhost"):
        raise SettingsError(f"ROOT {root}: expected file:///PATH, or a path")
    return LocalFiles(unquote(parts.path))
