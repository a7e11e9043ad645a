"""What spark-submit runs in the image: a file of its own, whose path knows no version of Python."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "pipeline.py"


def submit(*arguments):
    """Run the script as Spark runs it: by its path."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_its_arguments_are_those_of_partq_pipeline():
    done = submit("archive", "--help")
    assert done.returncode == 0
    assert "pipeline archive [OPTIONS] ROOT" in done.stdout


def test_a_wrong_job_ends_it_with_the_status_of_wrong_usage():
    done = submit("archives")
    assert done.returncode == 2
    assert "archives" in done.stderr
