"""What an engine of the archive's job does: rows of a queue become Parquet files."""

from collections.abc import Mapping
from typing import Protocol

from partq.pipeline.archive.feeds import Feed
from partq.pipeline.manifest import ArchivePosition, DataFile
from partq.pipeline.staging import Staging


class ArchiveEngine(Protocol):
    """Reads rows of a feed and writes them; what it raises is a PartqError."""

    def write(
        self,
        staging: Staging,
        feed: Feed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> list[DataFile]:
        """Write what lies between two places to files of `staging`; fails if it is not all there.

        Both name every partition that is known; one without a stop, or that begins where it stops,
        is left out. Each file has rows of one partition and one day, in their order. What is
        returned was read back from the files, in the order of partition and place.
        """
