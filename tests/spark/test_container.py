"""What a container of the image for Spark runs, for each word that Spark may start it with."""

import pytest

from partq.errors import SettingsError
from partq.spark.container import command

HOME = {"SPARK_HOME": "/opt/spark", "JAVA_HOME": "/java"}
EXECUTOR = {
    **HOME,
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-7",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "archive-exec-1",
}


def value_of(flag, argv):
    return argv[argv.index(flag) + 1]


def test_a_driver_is_spark_submit_in_its_own_container():
    argv = command(
        ["driver", "--properties-file", "/p", "local:///opt/partq/pipeline.py", "archive"],
        {**HOME, "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.8"},
    )
    assert argv == [
        *("/opt/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.8"),
        *("--deploy-mode", "client", "--properties-file", "/p"),
        *("local:///opt/partq/pipeline.py", "archive"),
    ]


def test_an_executor_is_java_with_what_spark_says_in_the_environment():
    argv = command(["executor"], EXECUTOR)
    assert argv[0] == "/java/bin/java"
    assert {"-Xms1g", "-Xmx1g"} < set(argv)
    told = argv[argv.index("-cp") + 2 :]
    assert told == [
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@driver:7078"),
        *("--executor-id", "1", "--cores", "2", "--app-id", "spark-7", "--hostname", "10.0.0.9"),
        *("--resourceProfileId", "0", "--podName", "archive-exec-1"),
    ]


def test_options_of_java_keep_their_order():
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 0, 9)}
    argv = command(["executor"], {**EXECUTOR, **options, "SPARK_JAVA_OPT_x": "-Dno"})
    assert argv[1:4] == ["-Dn=0", "-Dn=9", "-Dn=10"]
    assert "-Dno" not in argv


def test_an_executor_finds_settings_before_spark_and_extras_behind_it():
    assert value_of("-cp", command(["executor"], EXECUTOR)) == "/opt/spark/conf:/opt/spark/jars/*"
    more = {
        "SPARK_CONF_DIR": "/conf",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_CLASSPATH": "/first/*",
        "SPARK_EXTRA_CLASSPATH": "/extra/*",
        "SPARK_DIST_CLASSPATH": "/dist/*",
    }
    path = value_of("-cp", command(["executor"], {**EXECUTOR, **more}))
    assert path == "/conf:/hadoop:/first/*:/opt/spark/jars/*:/extra/*:/dist/*"


@pytest.mark.parametrize("missing", sorted(EXECUTOR))
def test_what_spark_did_not_say_is_named(missing):
    environ = {name: value for name, value in EXECUTOR.items() if name != missing}
    with pytest.raises(SettingsError, match=f"^{missing} is not set; Spark sets it in the pods"):
        command(["executor"], environ)


def test_a_driver_needs_its_address():
    with pytest.raises(SettingsError, match=r"^SPARK_DRIVER_BIND_ADDRESS is not set"):
        command(["driver", "x.py"], HOME)


def test_jobs_are_submitted_from_the_image_too():
    assert command(["spark-submit", "--version"], HOME) == [
        "/opt/spark/bin/spark-submit",
        "--version",
    ]


def test_everything_else_is_partq():
    assert command(["pipeline", "archive", "--once"], {}) == [
        "partq",
        "pipeline",
        "archive",
        "--once",
    ]
    assert command([], {}) == ["partq"]
