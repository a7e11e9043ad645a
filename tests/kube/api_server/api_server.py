"""A real etcd and kube-apiserver on loopback: Kubernetes's API without any node."""

import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Self

from e2e.cluster import binaries
from partq.testing.tcp_ports import HOST, free_port
from tests.kube.api_server.client import ApiError, Kube
from tests.kube.api_server.processes import Process, eventually

START_S = 280.0
"""It takes a core for some ten seconds, of which a busy machine has given it a tenth."""
ADMIN_TOKEN = "admin-of-the-tests"
# Nobody is there. The address is written into the endpoints of the Service `kubernetes`, where
# loopback is refused again and again.
_ADVERTISED = "192.0.2.1"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
_PROGRAMS = ("etcd", "kube-apiserver")


class MissingError(Exception):
    """The programs are not here."""


def find_programs(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of etcd and kube-apiserver: KUBEBUILDER_ASSETS, else the cache.

    Raises:
        MissingError: they are not there; the message says how to get them.
    """
    given = environ.get("KUBEBUILDER_ASSETS")
    folder = Path(given) if given else binaries.directory(environ)
    missing = [name for name in _PROGRAMS if not (folder / name).exists()]
    if missing:
        raise MissingError(
            f"no {' and no '.join(missing)} in {folder}: on Debian 12 as root `make test` builds "
            "them, elsewhere set KUBEBUILDER_ASSETS"
        )
    return folder


class ApiServer:
    """Both processes, with their data in `folder`; nothing is left when they are stopped."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        etcd_url, peer_url = f"http://{HOST}:{free_port()}", f"http://{HOST}:{free_port()}"
        self.url = f"https://{HOST}:{free_port()}"
        pki = folder / "pki"
        # The server makes its certificate itself, and its key signs the service accounts' tokens.
        self.ca_file, key_file = pki / "apiserver.crt", pki / "apiserver.key"
        self.audit_log = folder / "audit.log"
        """A line of JSON or two for every call that a service account has made."""
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(_AUDIT_POLICY))
        users = folder / "users.csv"
        users.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
        self._etcd = Process(
            [
                programs / "etcd",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                "--unsafe-no-fsync",
            ],
            log=folder / "etcd.log",
        )
        self._server = Process(
            [
                programs / "kube-apiserver",
                f"--etcd-servers={etcd_url}",
                f"--bind-address={HOST}",
                f"--secure-port={self.url.rpartition(':')[2]}",
                f"--advertise-address={_ADVERTISED}",
                f"--cert-dir={pki}",
                f"--token-auth-file={users}",
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self.audit_log}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key_file}",
                f"--service-account-signing-key-file={key_file}",
                "--service-cluster-ip-range=10.96.0.0/16",
                # It waits for tokens that the controller manager makes, of which there is none.
                "--disable-admission-plugins=ServiceAccount",
            ],
            log=folder / "kube-apiserver.log",
        )

    def __enter__(self) -> Self:
        self._etcd.start()
        try:
            self.serve()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def serve(self) -> None:
        """Start the API server, again after `break_down`, and wait until it answers."""
        self._server.start()
        eventually(self._is_ready, "the API server's answer", timeout_s=START_S)

    def break_down(self) -> None:
        """Kill the API server; what it has stored stays."""
        self._server.kill()

    def stop(self) -> None:
        """End both processes: their data is of no use to anybody."""
        self._server.kill()
        self._etcd.kill()

    def client(self, token: str = ADMIN_TOKEN) -> Kube:
        """Return a client for the bearer of a token."""
        return Kube(self.url, token, self.ca_file)

    def kubeconfig(self, name: str, token: str = ADMIN_TOKEN) -> Path:
        """Write a kubeconfig for the bearer of a token, and return its path."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "tests",
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
            "current-context": "tests",
        }
        path = self._folder / f"kubeconfig-{name}"
        path.write_text(json.dumps(content))
        return path

    def _is_ready(self) -> bool:
        for process in (self._etcd, self._server):
            process.require()
        if not self.ca_file.exists():
            return False
        with closing(self.client()) as kube:
            try:
                # The roles and the namespace are made a moment after it says that it is ready.
                return kube.get("Namespace", None, "default") is not None
            except (OSError, ApiError):
                return False
