"""A cluster on this machine, without Docker: Kubernetes 1.20 in separate namespaces."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from e2e.cluster import binaries, certificates, configuration, debian, volumes
from e2e.cluster.base import Cluster
from e2e.cluster.commands import ClusterError, alone_in, run, say, tail, wait_for
from e2e.cluster.configuration import API_SERVICE_IP, NODE_IP, NODE_NAME, Layout
from e2e.cluster.images import SPARK, Builder
from e2e.cluster.machine import Machine

_UP_TIMEOUT_S = 120.0
_KUBECTL_TIMEOUT_S = 10.0
_IMPORT_TIMEOUT_S = 300.0
_CHECKOUT = Path(__file__).resolve().parents[2]


def default_state(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the cluster's state, if none is given: in the user's state."""
    base = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "partq", "cluster").absolute()


class LocalCluster(Cluster):
    """One node, all of it on this machine; see `machine` for what keeps it apart from the host.

    Everything is in the folder `state`: keys, kubeconfigs, logs, data. `up` starts from nothing;
    `down` leaves the logs. Another cluster can run in another folder.
    """

    def __init__(self, state: Path | None = None) -> None:
        self._state = (state or default_state()).absolute()
        self._layout = Layout(binaries.directory(), self._state)
        self._machine = Machine(self._state, cgroup=self._layout.cgroup)
        self._images = Builder(binaries.cache())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._complete = self._state / "complete"
        """There once all of it was started: an `up` that was killed leaves a part."""

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator. Only of use inside: see `command`."""
        return Path(self._layout.kubeconfig("admin"))

    @property
    def logs(self) -> Path:
        """The folder with a log of each process, and with those of the pods in `pods/`."""
        return self._state / "logs"

    def prepare(self) -> None:
        """Build the binaries of Kubernetes that are missing.

        Raises:
            ClusterError: they could not be built.
        """
        binaries.ensure()

    def up(self) -> None:
        """Make the cluster, unless it runs already.

        Raises:
            ClusterError: a process of it ended or was not ready in time; what started is stopped.
        """
        debian.require()
        with alone_in(self._state):
            if self._machine.is_running() and self._complete.exists() and self._is_answering():
                say("it runs already")
                return
            self._stop()
            binaries.ensure()
            pause = self._images.pause(self._layout.binaries / "pause")
            began = time.monotonic()
            try:
                self._start(pause)
            except BaseException:
                self._stop()
                raise
            say(f"ready ({time.monotonic() - began:.1f} s); kubeconfig {self.kubeconfig}")

    def down(self) -> None:
        """End the cluster and remove its state, except the logs."""
        with alone_in(self._state):
            self._stop()

    def build_image(self, context: Path, name: str, stage: str | None = None) -> None:
        """Build an image of the project on a base of Debian; what is the same later is kept.

        Raises:
            ClusterError: it could not be built.
        """
        self._images.project(context, name, stage)

    def project_image(self, context: Path, name: str) -> str:
        """Build the image in `context` on a base of Debian, and load it.

        Raises:
            ClusterError: it could not be built or loaded.
        """
        self.load_image(self._images.project(context, name))
        return name

    def spark_image(self, context: Path, name: str) -> str:
        """Build the image for Spark in `context` on a base of Debian, and load it.

        Raises:
            ClusterError: it could not be built or loaded.
        """
        self.load_image(self._images.project(context, name, SPARK))
        return name

    def redis_image(self, name: str) -> None:
        """Build an image with Debian's Redis under `name`, and load it.

        Raises:
            ClusterError: it could not be built or loaded.
        """
        self.load_image(self._images.redis(name))

    def load_image(self, archive: Path) -> None:
        """Load the images of a docker archive.

        Raises:
            ClusterError: it is no such archive.
        """
        ctr = str(self._layout.binaries / "ctr")
        socket = str(self._layout.containerd_socket)
        argv = [ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", str(archive)]
        run(argv, timeout_s=_IMPORT_TIMEOUT_S)

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs `argv` in the cluster's network.

        Raises:
            ClusterError: the cluster does not run.
        """
        return self._machine.enter(argv, namespaces=["net"])

    def environment(self) -> Mapping[str, str]:
        """Return the variables under which kubectl and helm find the cluster, and are found."""
        return {"KUBECONFIG": str(self.kubeconfig), **self._path()}

    def tool(self, name: str) -> str:
        """Return the path of the `kubectl` or `helm` that fits the cluster's version."""
        return str(self._layout.binaries / name)

    def _start(self, pause: Path) -> None:
        self._prepare()
        say("starting Kubernetes")
        self._machine.start(NODE_IP)
        self._start_processes(configuration.early(self._layout))
        self._await("containerd's socket", self._layout.containerd_socket.exists)
        self.load_image(pause)
        self._await("the API server", self._is_answering)
        self._start_processes(configuration.late(self._layout))
        addons = [sys.executable, "-m", "e2e.cluster.addons", str(self._state)]
        self._processes["addons"] = self._machine.start_process(
            "addons", addons, env={**self._path(), "PYTHONPATH": str(_CHECKOUT)}, sees_host=True
        )
        self.kubectl("apply", "-f", "-", stdin=json.dumps(volumes.STORAGE_CLASS))
        self._await("the node", self._is_node_ready)
        self._await("the names", self._has_names)
        self._await("the service account `default`", self._has_service_account)
        self._complete.touch()

    def _stop(self) -> None:
        self._machine.stop()
        for process in self._processes.values():
            process.wait(timeout=10)  # they have ended with the machine
        self._processes.clear()
        for path in self._state.iterdir():
            if path == self.logs:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != ".lock":
                path.unlink()

    def _prepare(self) -> None:
        """Write everything that the processes read."""
        shutil.rmtree(self.logs, ignore_errors=True)
        pki = self._state / "pki"
        people = certificates.identities(NODE_NAME, NODE_IP, API_SERVICE_IP)
        certificates.make(pki, people)
        contents = configuration.files(self._layout)
        for person in people:
            pair = ((pki / f"{person.file}{kind}").read_bytes() for kind in (".crt", ".key"))
            contents[f"kubeconfigs/{person.file}"] = configuration.kubeconfig(
                (pki / "ca.crt").read_bytes(), *pair
            )
        for path, content in contents.items():
            file = self._state / path
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(content)

    def _start_processes(self, command_lines: Mapping[str, Sequence[str]]) -> None:
        for name, argv in command_lines.items():
            self._processes[name] = self._machine.start_process(name, argv, env=self._path())

    def _path(self) -> dict[str, str]:
        return {"PATH": f"{self._layout.binaries}:{os.environ.get('PATH', os.defpath)}"}

    def _await(self, what: str, is_true: Callable[[], object]) -> None:
        """Wait for a condition while every process of the cluster runs."""

        def check() -> object:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    log = self.logs / f"{name}.log"
                    raise ClusterError(f"{name} ended; see {log}\n{tail(log.read_text())}")
            return is_true()

        wait_for(what, check, timeout_s=_UP_TIMEOUT_S)

    def _is_answering(self) -> bool:
        if not self.kubeconfig.exists():
            return False
        return self._ask("get", "--raw", "/readyz") == "ok"

    def _is_node_ready(self) -> bool:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        return self._ask("get", "node", NODE_NAME, "-o", f"jsonpath={path}") == "True"

    def _has_names(self) -> bool:
        hosts = self._state / "hosts"
        return hosts.exists() and "kubernetes.default.svc" in hosts.read_text()

    def _has_service_account(self) -> bool:
        """Say whether pods can be made in `default`: not before its account has its token."""
        return bool(self._ask("get", "serviceaccount", "default", "-o", "jsonpath={.secrets}"))

    def _ask(self, *args: str) -> str:
        """Return what kubectl prints; nothing if it fails, or is slow as on a busy machine."""
        try:
            return self.kubectl(*args, check=False, timeout_s=_KUBECTL_TIMEOUT_S).strip()
        except ClusterError:
            return ""
