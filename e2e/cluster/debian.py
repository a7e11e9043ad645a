"""Debian packages: installed where that is harmless, otherwise only unpacked into the cache."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.commands import ClusterError, run, say

_RELEASE = "bookworm"
_APT = ["apt-get", "--quiet=2", "-o", "DPkg::Lock::Timeout=300", "-o", "APT::Sandbox::User=root"]
_APT_TIMEOUT_S = 1200


def require() -> None:
    """See that this is Debian 12 and that we are root, which the local cluster needs.

    Raises:
        ClusterError: it is not; the message names the other ways to a cluster.
    """
    if not is_supported():
        raise ClusterError(
            "the local cluster needs root on Debian 12 (bookworm); elsewhere give a cluster by "
            "E2E_KUBECONFIG, or install Docker and kind"
        )


def is_supported() -> bool:
    """Say whether this is Debian 12 and we are root."""
    release = Path("/etc/os-release")
    return (
        os.geteuid() == 0
        and release.exists()
        and f"VERSION_CODENAME={_RELEASE}" in release.read_text().splitlines()
    )


def install(packages: Sequence[str]) -> None:
    """Install those of `packages` that are missing.

    Raises:
        ClusterError: apt-get failed.
    """
    missing = [package for package in packages if not _is_installed(package)]
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    run([*_APT, "update"], timeout_s=_APT_TIMEOUT_S)
    run(
        [*_APT, "install", "--yes", "--no-install-recommends", *missing],
        timeout_s=_APT_TIMEOUT_S,
        env=env,
    )


def unpack(package: str, files: Sequence[str], into: Path) -> None:
    """Put `files` of `package` into the folder `into`, without installing the package.

    A server that is installed would be started as a service of the machine; this one is not.

    Raises:
        ClusterError: apt-get failed, or the package lacks one of the files.
    """
    say(f"unpacking {package}")
    with tempfile.TemporaryDirectory() as folder:
        run([*_APT, "update"], timeout_s=_APT_TIMEOUT_S)
        run([*_APT, "download", package], timeout_s=_APT_TIMEOUT_S, cwd=Path(folder))
        (archive,) = Path(folder).glob("*.deb")
        run(["dpkg-deb", "--extract", archive, folder], timeout_s=120)
        for file in files:
            place(Path(folder, file), into)


def place(file: Path, into: Path) -> None:
    """Copy the executable `file` into the folder `into`; nobody ever sees half of it.

    Raises:
        ClusterError: there is no such file.
    """
    if not file.exists():
        raise ClusterError(f"{file.name} is not where it was expected: {file}")
    partial = into / f".{file.name}.partial"
    shutil.copyfile(file, partial)
    partial.chmod(0o755)
    partial.rename(into / file.name)


def archive() -> str:
    """Return the address from which this machine's apt gets Debian 12.

    Raises:
        ClusterError: its sources name none.
    """
    index = ["Created-By: Packages", "Component: main", f"Codename: {_RELEASE}"]
    found = run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", *index], timeout_s=60
    )
    for line in found.stdout.splitlines():
        release, _, address = line.partition(" ")
        if release == _RELEASE:
            return address
    raise ClusterError(f"apt's sources name no archive of Debian {_RELEASE}, component main")


def _is_installed(package: str) -> bool:
    status = run(["dpkg-query", "--show", "-f", "${Status}", package], timeout_s=60, check=False)
    return status.stdout == "install ok installed"
