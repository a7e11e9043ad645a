"""The images that the stories need: their names, and how they are built ahead of the stories.

`python -m e2e.images` builds them and ends, with what the cluster is made of; without it the
stories build both when they begin. It needs no cluster.
"""

import sys
import tempfile
from pathlib import Path

from e2e import earlier
from e2e.cluster import ClusterError, choose
from e2e.cluster.images import SPARK

CHECKOUT = Path(__file__).resolve().parent.parent
IMAGE = "partq:e2e"
EARLIER_IMAGE = f"{IMAGE}-before"
"""Of the release before this one, for the upgrade."""
SPARK_IMAGE = "partq-spark:e2e"


def main() -> int:
    """Build all of it; return the exit status."""
    try:
        cluster = choose()
        cluster.build_image(CHECKOUT, IMAGE)
        cluster.build_image(CHECKOUT, SPARK_IMAGE, SPARK)
        cluster.prepare()
        with tempfile.TemporaryDirectory(prefix="partq-earlier-") as folder:
            earlier.unpack(CHECKOUT, Path(folder))
            cluster.build_image(Path(folder), EARLIER_IMAGE)
    except earlier.NoEarlierError as error:
        sys.stdout.write(f"images: none to upgrade from: {error}\n")
    except ClusterError as error:
        sys.stderr.write(f"images: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
