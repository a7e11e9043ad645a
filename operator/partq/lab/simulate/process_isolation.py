"""What a simulated history needs of the process that it runs in."""

import gc
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def alone(seed: int) -> Iterator[None]:
    """Let chance be that of a seed, and nobody be told what the simulated parts log."""
    before = random.getstate()
    level = logging.root.manager.disable
    was_collecting = gc.isenabled()
    random.seed(seed)  # the client draws its waiting times there
    logging.disable(logging.CRITICAL)
    gc.disable()  # it would cost a third of the time; there is enough memory for one history
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
        logging.disable(level)
        random.setstate(before)
