"""Raises errors of partq in Spark as one sentence, without a stack trace."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from partq.errors import PartqError


@contextmanager
def short_errors() -> Iterator[None]:
    """Have Spark tell an error of partq by its sentence alone.

    The process in which Python runs for Spark ends with the error that it hands to Java. By then it
    looks into its environment whether to add where in the code that was, which helps nobody whose
    token is wrong. Errors that are no PartqError are mistakes, and keep their trace.
    """
    try:
        yield
    except PartqError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
