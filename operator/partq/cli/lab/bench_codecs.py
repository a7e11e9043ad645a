"""`partq bench codecs`: what each compression makes of batches of real events, and how fast."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import click

from partq.cli.lab.bench_options import count_option, input_option
from partq.core.hashing import slot_of
from partq.lab.workload.events import default_input, load
from partq.wire.batch import Codec, Message, decode, encode, encode_messages

RUNS = 3
_MEGA = 1_000_000

_HELP = """Measure the kinds of compression on events, in this process alone.

Packs the events of a file (default: the demo's, which are real) into batches of equal counts, and
reads them back. Rates are bytes before compression per second of CPU time, medians of three.

\b
  partq bench codecs
  partq bench codecs --batch-messages 50 --input events.ndjson
"""


@dataclass(frozen=True, slots=True)
class Packed:
    """What one codec came to."""

    stored_bytes_per_message: float
    share: float
    """Stored bytes over those without compression."""
    pack_mb_per_s: float
    """Messages to batches."""
    open_mb_per_s: float
    """Batches to messages."""


@click.command(help=_HELP)
@count_option("--batch-messages", 1000, within=(1, 8192), about="Messages per batch.")
@input_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def codecs(*, batch_messages: int, input_file: Path | None, as_json: bool) -> None:
    """Measure and show."""
    events = load(input_file or default_input())
    messages = [Message(event.key, event.value) for event in events]
    found = measure(messages, batch_messages)
    if as_json:
        click.echo(json.dumps({codec.name.lower(): asdict(found[codec]) for codec in found}))
        return
    click.echo(f"{len(messages):,} messages, {batch_messages:,} per batch")
    click.echo("codec   bytes per message  share  packed MB/s  opened MB/s")
    for codec, packed in found.items():
        click.echo(
            f"{codec.name.lower():7} {packed.stored_bytes_per_message:17.1f}  {packed.share:5.2f}"
            f"  {packed.pack_mb_per_s:11.0f}  {packed.open_mb_per_s:11.0f}"
        )


def measure(messages: Sequence[Message], batch_messages: int) -> dict[Codec, Packed]:
    """Return what each codec makes of the messages in batches of `batch_messages`.

    Raises:
        UndecodableError: a batch does not read as it was written.
    """
    chunks = [messages[at : at + batch_messages] for at in range(0, len(messages), batch_messages)]
    slots = [[slot_of(message.key or "") for message in chunk] for chunk in chunks]
    raw_bytes = sum(sum(map(len, encode_messages(chunk))) for chunk in chunks)
    found: dict[Codec, Packed] = {}
    plain_bytes = sum(map(len, _pack(chunks, slots, Codec.NONE)))
    for codec in Codec:
        batches = _pack(chunks, slots, codec)
        stored_bytes = sum(map(len, batches))
        pack_s = _cpu_s(partial(_pack, chunks, slots, codec))
        open_s = _cpu_s(partial(_open, batches))
        found[codec] = Packed(
            round(stored_bytes / len(messages), 1),
            round(stored_bytes / plain_bytes, 3),
            round(raw_bytes / _MEGA / pack_s, 1),
            round(raw_bytes / _MEGA / open_s, 1),
        )
    return found


def _pack(
    chunks: Sequence[Sequence[Message]], slots: Sequence[Sequence[int]], codec: Codec
) -> list[bytes]:
    return [
        encode(encode_messages(chunk), places, codec)
        for chunk, places in zip(chunks, slots, strict=True)
    ]


def _open(batches: Sequence[bytes]) -> None:
    for batch in batches:
        decode(batch)


def _cpu_s(work: Callable[[], Any]) -> float:
    taken = []
    for _ in range(RUNS):
        began = process_time()
        work()
        taken.append(process_time() - began)
    return max(median(taken), 1e-9)
