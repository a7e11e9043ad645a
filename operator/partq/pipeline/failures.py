"""Turns what Spark raises into errors of partq: one sentence instead of a stack of Java."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from partq.errors import BY_CODE, InternalError, PartqError

MAX_SENTENCE_CHARS = 500

_OURS = re.compile(r"(?:^|: )(?:partq\.)(?:\w+\.)*(\w+Error): (.+)$", re.MULTILINE)
"""How Python's traceback, inside of Java's, ends with an error of ours; the data source's own come
without a trace, behind Spark's words for where it failed."""
_MISSING = re.compile(r"ClassNotFoundException: (?:Class )?([\w.$]+)")
_THEIRS = re.compile(r"^(?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*(?:Error|Exception): (.+)$")


@contextmanager
def spark_failures() -> Iterator[None]:
    """Let errors of partq pass, also those that a task raised; put the others into a sentence.

    Raises:
        PartqError: the kind that was raised in Python, where there is one.
        InternalError: Spark or Java failed on their own.
        PythonException: a task raised what partq does not raise: a mistake, which keeps its trace.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        ours = as_ours(error)
        if ours is None:
            raise
        raise ours from error


def as_ours(error: BaseException) -> PartqError | None:
    """Return the error of partq that stands in one of Spark, else one that names Spark's.

    None: Python raised something else in a task.
    """
    text = _text(error)
    found = None
    for found in _OURS.finditer(text):  # noqa: B007  the last one is the one that was raised
        pass
    if found is not None:
        kinds = {kind.__name__: kind for kind in BY_CODE.values()}
        return kinds.get(found[1], InternalError)(found[2].strip())
    if isinstance(error, PythonException):
        return None
    if missing := _MISSING.search(text):
        return InternalError(
            f"Spark: it has no class {missing[1][:MAX_SENTENCE_CHARS]}: a URL needs the jars of "
            "its storage. For s3a:// give --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:"
            "VERSION, with the version of Hadoop that Spark has, or --packages under spark-submit"
        )
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    while told := _THEIRS.match(first):
        first = told[1]
    return InternalError(f"Spark: {first[:MAX_SENTENCE_CHARS]}")


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        parts = []
        cause = error.java_exception
        while cause is not None:
            parts.append(str(cause.toString()))
            cause = cause.getCause()
        return "\n".join(parts)
    return str(error)
