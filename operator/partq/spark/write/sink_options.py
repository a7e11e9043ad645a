"""What the options of a write say, checked before anything is written."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from partq.client.produce.batching import CODECS
from partq.core.clocks.time_to_live import MAX_TTL_MS
from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.spark.connection import (
    CONNECTION_OPTIONS,
    ClientOptions,
    connection_of,
)
from partq.spark.connectivity import FIRST_TIMEOUT_S
from partq.wire.batch import Codec

DEFAULT_TIMEOUT_S = 120.0
MAX_WRITE_ID_CHARS = 80
_OWN = ("writeId", "exactlyOnce", "compression", "ttlMs", "keyHeaders")
WRITE_OPTIONS = (*CONNECTION_OPTIONS, *_OWN)
_OF_SPARK = ("checkpointLocation",)
"""Options that Spark hands through and looks at itself."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write as it was asked for."""

    connection: ClientOptions
    write_id: str
    """Names a batch write; drawn where none is given. A stream is named by its query."""
    is_exactly_once: bool
    codec: Codec | None
    ttl_ms: int
    """Time to live of rows without one; 0: the queue's."""
    keeps_key_headers: bool
    """Whether a header may name another key than the row has."""


def write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Read the options of a batch or of a stream; their names are of any case.

    Raises:
        BadRequestError: an option that there is not, or that is unusable.
    """
    options = {name.lower(): str(value).strip() for name, value in given.items()}
    known = {name.lower() for name in (*WRITE_OPTIONS, *_OF_SPARK)}
    for name in options:
        if name not in known:
            raise BadRequestError(
                f"option {excerpt(name)!r} is not an option of writes; there are "
                f"{', '.join(WRITE_OPTIONS)}"
            )
    connection = connection_of(given)
    is_timed = bool(options.get("timeoutseconds"))
    if not is_timed:
        connection = replace(connection, timeout_s=DEFAULT_TIMEOUT_S)
    if is_stream:
        # Each micro-batch begins again, and the one before has shown that the URL is right.
        answer_s = connection.timeout_s if is_timed else FIRST_TIMEOUT_S
        connection = replace(connection, answer_s=answer_s)
    write_id = options.get("writeid", "")
    if write_id and is_stream:
        raise BadRequestError(
            "option writeId: a stream has none, its query and micro-batch name what is written; "
            "leave it out"
        )
    if "writeid" in options and not write_id:
        raise BadRequestError(
            "option writeId is empty: the rows would be stored again by each run; set it, or leave "
            "it out"
        )
    if len(write_id) > MAX_WRITE_ID_CHARS or not write_id.isprintable():
        raise BadRequestError(
            f"option writeId: {excerpt(write_id)!r}; expected 1 to {MAX_WRITE_ID_CHARS} printable "
            "characters"
        )
    exactly_once = (options.get("exactlyonce") or "true").lower()
    if exactly_once not in {"true", "false"}:
        raise BadRequestError(
            f"option exactlyOnce: {excerpt(exactly_once)!r}; expected true or false"
        )
    compression = (options.get("compression") or "auto").lower()
    if compression not in CODECS:
        raise BadRequestError(
            f"option compression: {excerpt(compression)!r}; expected one of {', '.join(CODECS)}"
        )
    key_headers = (options.get("keyheaders") or "refuse").lower()
    if key_headers not in {"refuse", "keep"}:
        raise BadRequestError(
            f"option keyHeaders: {excerpt(key_headers)!r}; expected refuse or keep"
        )
    return WriteOptions(
        connection=connection,
        write_id=write_id or uuid.uuid4().hex,
        is_exactly_once=exactly_once == "true",
        codec=CODECS[compression],
        ttl_ms=_ttl_ms(options.get("ttlms") or "0"),
        keeps_key_headers=key_headers == "keep",
    )


def _ttl_ms(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= MAX_TTL_MS):
        raise BadRequestError(
            f"option ttlMs: {excerpt(text)!r}; expected milliseconds from 1 to {MAX_TTL_MS}, or 0 "
            "for no limit but the queue's"
        )
    return int(text)
