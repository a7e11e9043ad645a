"""How processes write their logs: one line per event to standard error."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def configure_logging(level: str) -> None:
    """Write records from `level` on (debug, info, warning, error) to standard error."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    # One line per request would drown the state changes.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


@contextmanager
def left_out(logger: str, is_told: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Keep out of the log what the command tells by itself: the records for which `is_told`."""

    def is_untold(record: logging.LogRecord) -> bool:
        return not is_told(record)

    log = logging.getLogger(logger)
    log.addFilter(is_untold)
    try:
        yield
    finally:
        log.removeFilter(is_untold)


@contextmanager
def without_traces(is_expected: Callable[[BaseException], bool]) -> Iterator[None]:
    """Log the errors for which `is_expected` without their traces: the text says what happened.

    It holds for every logger, through the handlers that the root has when the block begins.
    """

    def shorten(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_expected(error):
            record.exc_info = record.exc_text = None
        return True

    handlers = tuple(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(shorten)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(shorten)
