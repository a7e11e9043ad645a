"""Finds the Java that Spark runs on."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from partq.errors import UnavailableError

INSTALL = "apt-get install -y openjdk-17-jre-headless"


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` that Spark would start: of JAVA_HOME, else of the PATH.

    Raises:
        UnavailableError: no java was found.
    """
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if java.is_file():
            return java
        raise UnavailableError(
            f"JAVA_HOME is {home}, and there is no bin/java; Spark needs Java 17 or newer there, "
            "or no JAVA_HOME and a java on the PATH"
        )
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        raise UnavailableError(
            f"no java on the PATH; Spark needs Java 17 or newer: on Debian, {INSTALL}"
        )
    return Path(found)
