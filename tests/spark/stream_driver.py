"""A driver that is killed in its second micro-batch: rows are out, the batch is not finished."""

import json
import os
import sys
from pathlib import Path

import psutil

from partq.spark.session import open_session
from tests.spark.session import JAVA_OPTIONS, NO_CODEGEN, SETTINGS
from tests.spark.stream_run import run_to_end

root = Path(sys.argv[1])
# Its life is short: what a compiler gains comes after its end.
settings = {"spark.driver.memory": "1g", JAVA_OPTIONS: SETTINGS[JAVA_OPTIONS], **NO_CODEGEN}
spark = open_session("killed", master="local[2]", settings=settings)
frame = spark.readStream.format("partq").options(**json.loads(os.environ["PARTQ_READ"])).load()


def take(batch, number):
    """Write a micro-batch down, and die of the second one: Java first, then Python."""
    rows = sorted(int(row.value) for row in batch.collect())
    (root / f"rows-{number}.json").write_text(json.dumps(rows))
    if number == 1:
        me = psutil.Process()
        for process in [*me.children(recursive=True), me]:
            process.kill()


writer = frame.select("value").writeStream.foreachBatch(take)
run_to_end(writer.option("checkpointLocation", str(root / "checkpoint")).start)
