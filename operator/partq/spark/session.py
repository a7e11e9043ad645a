"""Makes the Spark session that a job runs in."""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from partq.spark.java import find_java

LOCAL = "local[*]"


def open_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of this process, made if needed; Ctrl-C means what it meant.

    Under `spark-submit` the cluster and everything else are as they were submitted: nothing is
    set here but the name. Otherwise Spark runs in this process, on loopback, without its web page.

    Args:
        name: of the application, as Spark's pages show it.
        master: where to run; None: as submitted, else in this process on all its cores.
        settings: more of Spark's own, `spark.sql.shuffle.partitions` say.

    Raises:
        UnavailableError: Spark would run in this process, and there is no Java.
    """
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ:
        find_java()
        where = master or LOCAL
        builder = builder.master(where)
        # Workers in Python are of the environment that partq is installed in.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if where.startswith("local"):
            for key, value in _LOCAL_SETTINGS.items():
                builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    # Spark would take Ctrl-C from a command that ends its job in order.
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if on_ctrl_c is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_ctrl_c)
    return session


_QUIET = Path(__file__).with_name("log4j2.properties").as_uri()

_LOCAL_SETTINGS = {
    # From the start on: a later level comes after what Spark says of its start.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET}",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # It would write over the display of the command that runs the job.
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    # Else each call that builds a column asks Spark several times over who made it: an eighth of
    # what an audit of little data costs. An error in a running query then names no line of Python.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Times are shown and stored as they are, wherever the job runs.
    "spark.sql.session.timeZone": "UTC",
}
