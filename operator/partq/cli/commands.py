"""The table of commands, each imported when it runs."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from partq.cli import interrupts
from partq.cli.errors import command_errors


class CommandEntry(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, CommandEntry] = {
    "demo": CommandEntry(
        "partq.cli.lab.demo", "demo", "Run the main job on real input, and judge it."
    ),
    "dev": CommandEntry(
        "partq.cli.hosting.dev", "dev", "Run queues on this machine: Redis, brokers, coordinator."
    ),
    "publish": CommandEntry("partq.cli.messages.publish", "publish", "Publish messages."),
    "consume": CommandEntry(
        "partq.cli.messages.consume", "consume", "Print the messages of a consumer group."
    ),
    "drained": CommandEntry(
        "partq.cli.members.drained",
        "drained",
        "Hand a member's partitions over, and wait: for preStop.",
    ),
    "status": CommandEntry(
        "partq.cli.queues.status", "status", "Show partitions, members, lag and handoffs."
    ),
    "browse": CommandEntry(
        "partq.cli.messages.browse", "browse", "Look at messages without consuming them."
    ),
    "queues": CommandEntry(
        "partq.cli.queues.queue_list", "queues", "List the queues, what they store, and their lag."
    ),
    "groups": CommandEntry(
        "partq.cli.queues.groups", "groups", "List the consumer groups and their lag; remove one."
    ),
    "members": CommandEntry(
        "partq.cli.members.members", "members", "List the members of a group and what each holds."
    ),
    "partitions": CommandEntry(
        "partq.cli.members.partitions",
        "partitions",
        "Show who holds which partition; mark those that nobody may register.",
    ),
    "reset": CommandEntry(
        "partq.cli.queues.reset", "reset", "Move a group's cursors, back or forward."
    ),
    "rescale": CommandEntry(
        "partq.cli.queues.rescale", "rescale", "Change the number of partitions of a live queue."
    ),
    "keys": CommandEntry(
        "partq.cli.keys.keys", "keys", "Show a group's keys that wait, and release one."
    ),
    "state": CommandEntry(
        "partq.cli.keys.state", "state", "Show what a group has left of its keys."
    ),
    "sessions": CommandEntry(
        "partq.cli.keys.sessions", "sessions", "Show sessions and their locks, or end a lock."
    ),
    "dead-letters": CommandEntry(
        "partq.cli.dead_letters.dead_letters",
        "dead_letters",
        "Look at dead letters, replay or drop them.",
    ),
    "scheduled": CommandEntry(
        "partq.cli.messages.scheduled",
        "scheduled",
        "Look at scheduled messages, cancel or drop them.",
    ),
    "explain": CommandEntry(
        "partq.cli.queues.explain", "explain", "Say why a partition moved, and what it waits for."
    ),
    "plan": CommandEntry(
        "partq.cli.queues.plan", "plan", "Compute an assignment, or what a scale would move."
    ),
    "bench": CommandEntry("partq.cli.lab.bench", "bench", "Measure throughput and latency."),
    "chaos": CommandEntry("partq.cli.lab.chaos", "chaos", "Kill every part under load, and judge."),
    "simulate": CommandEntry(
        "partq.cli.lab.simulate", "simulate", "Run the protocol under faults in simulated time."
    ),
    "pipeline": CommandEntry(
        "partq.cli.pipeline.group", "pipeline", "Archive, replay and check queues, with Spark."
    ),
    "completion": CommandEntry(
        "partq.cli.completion", "completion", "Print what completes commands in a shell."
    ),
    "crds": CommandEntry("partq.cli.crds", "crds", "Write the CustomResourceDefinitions."),
    "broker": CommandEntry(
        "partq.cli.hosting.processes", "broker", "Run one broker; settings: environment."
    ),
    "coordinator": CommandEntry(
        "partq.cli.hosting.processes", "coordinator", "Run one coordinator; settings: environment."
    ),
    "operator": CommandEntry(
        "partq.cli.hosting.processes", "operator", "Run the operator; settings: environment."
    ),
}


class LazyGroup(click.Group):
    """Commands by name; the help lists them without importing any."""

    def __init__(self, *, table: Mapping[str, CommandEntry], **others: Any) -> None:
        super().__init__(**others)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a name."""
        entry = self._table.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        interrupts.raise_again()  # from now on there may be something to be left in order
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was named; for an unknown name, suggest similar ones."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self._table, ctx=ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what a shell may complete, without importing the commands."""
        named = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self._table.items()
            if name.startswith(incomplete)
        ]
        return named if incomplete[:1] != "-" else super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._table.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; what is expected to go wrong ends in a sentence."""
        with command_errors():
            return super().invoke(ctx)


_HELP = """Partitioned queues: every key in order, handed over without a gap.

\b
A first look:
  partq dev up -f examples/queue.yaml      in one terminal
  echo "hello" | partq publish --key k     in another
  partq consume --group workers --count 1
  partq status

Exit status: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted, 141 nobody reads.
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="partq")
def cli() -> None:
    """Read the options that stand before the command."""
