"""What a container of the image for Spark runs: the roles that Spark asks for, else `partq`.

On Kubernetes Spark starts its pods with one word, `driver` or `executor`, and says the rest in
variables of the environment. Spark's own image answers in a script; this is the same for pyspark as
pip installs it.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence

from partq.errors import PartqError, SettingsError

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""An executor's arguments, and the variables that Spark gives them in."""
_SPARK_S_OWN = ("spark-submit", "spark-class", "pyspark")


def command(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return what to run for the arguments of a container.

    `driver`: spark-submit in this container, with the arguments that follow. `executor`: an
    executor as of the environment. One of Spark's own programs: that one, so that jobs can be
    submitted from the image. Everything else: `partq` with these arguments.

    Raises:
        SettingsError: a variable is missing; Spark sets it where it starts the container itself.
    """
    match list(arguments):
        case ["driver", *rest]:
            address = _get(environ, "SPARK_DRIVER_BIND_ADDRESS")
            return [
                f"{_get(environ, 'SPARK_HOME')}/bin/spark-submit",
                *("--conf", f"spark.driver.bindAddress={address}"),
                *("--deploy-mode", "client", *rest),
            ]
        case ["executor", *_]:
            return _executor(environ)
        case [program, *rest] if program in _SPARK_S_OWN:
            return [f"{_get(environ, 'SPARK_HOME')}/bin/{program}", *rest]
        case rest:
            return ["partq", *rest]


def main() -> None:
    """Become what the arguments of the process ask for."""
    try:
        argv = command(sys.argv[1:], os.environ)
    except PartqError as error:
        sys.exit(f"partq: {error.message}")
    os.execvp(argv[0], argv)  # noqa: S606 - the arguments are those of the container


def _executor(environ: Mapping[str, str]) -> list[str]:
    memory = _get(environ, "SPARK_EXECUTOR_MEMORY")
    options = [match for name in environ if (match := _JAVA_OPTION.fullmatch(name))]
    options.sort(key=lambda match: int(match[1]))
    arguments = ((flag, _get(environ, name)) for flag, name in _ARGUMENTS.items())
    return [
        f"{_get(environ, 'JAVA_HOME')}/bin/java",
        *(environ[match[0]] for match in options),
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", _class_path(environ)),
        _BACKEND,
        *(word for pair in arguments for word in pair),
    ]


def _class_path(environ: Mapping[str, str]) -> str:
    """Return where an executor finds settings first, then what was added, then Spark itself."""
    home = _get(environ, "SPARK_HOME")
    parts = [
        environ.get("SPARK_CONF_DIR") or f"{home}/conf",
        environ.get("HADOOP_CONF_DIR"),
        environ.get("SPARK_CLASSPATH"),
        f"{home}/jars/*",
        environ.get("SPARK_EXTRA_CLASSPATH"),
        environ.get("SPARK_DIST_CLASSPATH"),
    ]
    return ":".join(part for part in parts if part)


def _get(environ: Mapping[str, str], name: str) -> str:
    if value := environ.get(name):
        return value
    raise SettingsError(
        f"{name} is not set; Spark sets it in the pods that it makes: start jobs by spark-submit "
        "or as a SparkApplication, or run `partq` in this image"
    )


if __name__ == "__main__":
    main()
