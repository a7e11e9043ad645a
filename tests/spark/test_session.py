import signal

import pytest

from partq.errors import UnavailableError
from partq.spark.java import find_java


def test_spark_runs_here(spark):
    assert spark.range(10).selectExpr("sum(id)").first()[0] == 45


@pytest.mark.usefixtures("spark")
def test_ctrl_c_is_left_to_who_has_opened_the_session():
    """Spark's own handler would keep a job from ending in order."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_java_says_what_to_install():
    with pytest.raises(UnavailableError, match="openjdk-17-jre-headless"):
        find_java({"PATH": ""})


def test_a_java_home_without_java_is_named():
    with pytest.raises(UnavailableError, match="JAVA_HOME is /nowhere"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": "/usr/bin"})
