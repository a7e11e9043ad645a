"""How processes write their logs: one line per event to standard error."""

import logging


def configure_logging(level: str) -> None:
    """Write records from `level` on (debug, info, warning, error) to standard error."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    # One line per request would drown the state changes.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
