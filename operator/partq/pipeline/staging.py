"""Files of an archive that are written, and belong to nothing yet."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Self
from uuid import uuid4

from partq.pipeline.archive_log import STAGING
from partq.pipeline.manifest import DataFile
from partq.pipeline.storage.files import Files


class Staging:
    """A folder for the files of one attempt. Use it in `with`.

    At the end of the block what was not put in place is deleted; after a crash it stays, and is
    swept later.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.attempt = uuid4().hex
        self.folder = f"{STAGING}/{self.attempt}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.remove(self.folder)

    def place(self, written: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Move files where they belong, and return them as they are then, with their digests.

        The name tells the offsets, and is like no other: of two attempts each has its own.
        """
        placed = []
        for number, each in enumerate(written):
            *_, stream, date, partition, _ = each.path.split("/")
            name = f"{each.first:015d}-{each.stop:015d}-{self.attempt[:12]}-{number}.parquet"
            path = f"{stream}/{date}/{partition}/{name}"
            digest = self.files.digest(each.path)
            self.files.move(each.path, path)
            placed.append(replace(each, path=path, sha256=digest))
        return tuple(placed)
