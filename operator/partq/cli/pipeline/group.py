"""The table of the pipeline's commands, each imported when it runs."""

from collections.abc import Mapping

import click

from partq.cli.commands import CommandEntry, LazyGroup

PIPELINES: Mapping[str, CommandEntry] = {
    "advise": CommandEntry(
        "partq.cli.pipeline.advise", "advise", "Suggest numbers of partitions and consumers."
    ),
    "archive": CommandEntry(
        "partq.cli.pipeline.archive", "archive", "Write a queue to Parquet, each message once."
    ),
    "audit": CommandEntry(
        "partq.cli.pipeline.audit", "audit", "Check the archived record of what happened."
    ),
    "compact": CommandEntry(
        "partq.cli.pipeline.compact", "compact", "Merge the small files of an archive."
    ),
    "replay": CommandEntry(
        "partq.cli.pipeline.replay", "replay", "Publish an archive, in the order of each key."
    ),
}

_HELP = """Archive queues to Parquet, replay them, and check what happened to them.

`archive` and `audit` of few messages run in this process and need, in a checkout of partq,
pip install -e '.[pipeline]'. Larger ones, and the other commands, are Spark jobs: Spark runs in
this process, on all cores, unless --master names a cluster or the command runs under spark-submit.
It needs Java 17 and pip install -e '.[spark]'.

\b
  partq pipeline archive /data/orders --group archive
  partq pipeline compact /data/orders
  partq pipeline replay /data/orders --queue orders-copy --rate 1000
  partq pipeline audit /data/orders
  partq pipeline advise /data/orders --consumer-rate 250

Progress goes to standard error; --json prints the result, or the error, as one JSON object on
standard output.
"""


@click.group(cls=LazyGroup, table=PIPELINES, help=_HELP)
def pipeline() -> None:
    """Read the options that stand before the command."""
