"""Files of an archive on HDFS or an object store, through Hadoop's file systems in Spark's JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from partq.errors import SettingsError


class HadoopFiles:
    """Files below a URL. A rename is what makes a file appear, whole.

    HDFS and Azure's hierarchical stores rename in one step and refuse a name that is taken. An
    object store copies and deletes: a file appears whole there, too, but of two jobs that take one
    name in the same moment both may think that they were first. One job at a time writes there.

    Raises:
        SettingsError: Spark's JVM knows no file system for the URL.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/") or root
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        with self._naming(root):
            top = self._hadoop.Path(root)
            self._system = top.getFileSystem(conf)
            self._context = self._hadoop.FileContext.getFileContext(self._system.getUri(), conf)
            self._top = str(self._system.makeQualified(top).toString()).rstrip("/")
        gateway: Any = spark.sparkContext._gateway
        self._rename_options = gateway.new_array(self._hadoop.Options.Rename, 1)
        self._rename_options[0] = self._hadoop.Options.Rename.NONE

    def url(self, path: str) -> str:
        """Return what Spark reads and writes."""
        return f"{self._top}/{path}"

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: it is not there."""
        with self._naming(path):
            if not self._system.exists(self._path(path)):
                return None
            stream = self._system.open(self._path(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file, as hex; empty: it is not there."""
        with self._naming(path):
            if not self._system.exists(self._path(path)):
                return ""
            # In the JVM: the file's bytes do not have to come to Python.
            stream = self._system.open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> bool:
        """Make a file, durable and whole; False: one of that name is there, and stays."""
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid4().hex}"
        with self._naming(path):
            stream = self._system.create(self._path(draft), False)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            try:
                return self._rename(draft, path)
            finally:
                self._system.delete(self._path(draft), False)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        with self._naming(folder):
            if not self._system.exists(self._path(folder)):
                return []
            listed = self._system.listStatus(self._path(folder))
            names = [str(each.getPath().getName()) for each in listed]
        return sorted(name for name in names if not name.startswith("."))

    def walk(self, folder: str) -> list[tuple[str, int, int]]:
        """Return path, size and modification time in ms of every file below a folder."""
        found = []
        with self._naming(folder):
            if not self._system.exists(self._path(folder)):
                return []
            files = self._system.listFiles(self._path(folder), True)
            while files.hasNext():
                status = files.next()
                path = str(status.getPath().toString()).removeprefix(self._top + "/")
                if not path.rpartition("/")[2].startswith("."):
                    found.append((path, int(status.getLen()), int(status.getModificationTime())))
        return sorted(found)

    def move(self, source: str, target: str) -> None:
        """Put a file in another place, where no file is; it is durable afterwards."""
        with self._naming(target):
            self._system.mkdirs(self._path(target).getParent())
            if not self._rename(source, target):
                raise SettingsError(f"{self.url(target)}: is there already; expected no such file")

    def remove(self, path: str) -> None:
        """Delete a file or a folder with all that is in it; one that is not there is fine."""
        with self._naming(path):
            self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.url(path))

    def _rename(self, source: str, target: str) -> bool:
        try:
            self._context.rename(self._path(source), self._path(target), self._rename_options)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
                return False
            raise
        return True

    @contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            reason = str(error.java_exception.toString()).splitlines()[0]
            raise SettingsError(f"{self.root}: {path}: {reason}") from error
