"""What a job shows of how far it is."""

from partq.cli.pipeline.display import ProgressRate, count_text
from partq.pipeline.watch import JobProgress


def test_a_count_says_what_is_counted():
    assert count_text(JobProgress(1000, 2000), 310) == "1,000 of 2,000 rows, 310 rows/s"
    assert count_text(JobProgress(5, unit="bytes"), 0) == "5 bytes"
    assert count_text(JobProgress(1, 2, unit="steps"), 0.5) == "1 of 2 steps"


def test_a_job_that_counts_something_else_begins_its_rate_again():
    rate = ProgressRate()
    rate.add(JobProgress(0, unit="bytes"))
    assert rate.add(JobProgress(10_000_000, unit="bytes")) > 0
    assert rate.add(JobProgress(10)) == 0, "rows have no rate before the second"
    assert rate.add(JobProgress(20)) > 0
