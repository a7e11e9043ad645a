"""What a cluster brings along beside Kubernetes: names (through dnsmasq) and volumes.

    python -m e2e.cluster.addons STATE_DIR

Runs in the cluster's network until it is killed.
"""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from e2e.cluster import names, volumes
from e2e.cluster.api_watch import Api, ApiError, Objects
from e2e.cluster.commands import say
from e2e.cluster.configuration import API_URL, NODE_IP, NODE_NAME

_ALREADY_THERE = 409
_NOT_FOUND = 404


class Names:
    """dnsmasq and the hosts file it answers from, which is rewritten at every change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._services: Objects = {}
        self._endpoints: Objects = {}
        self._lock = threading.Lock()
        file.write_text("")
        # While it starts, dnsmasq would not survive the signal that a change sends. It reads the
        # file after it has begun to listen to the signal: none is needed before.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._dnsmasq = subprocess.Popen(
            [  # noqa: S607 - dnsmasq is where the PATH has it
                "dnsmasq",
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--pid-file=",
                "--user=root",
                "--bind-interfaces",
                f"--listen-address={NODE_IP}",
                f"--addn-hosts={file}",
                "--no-hosts",
                "--no-resolv",
                "--cache-size=0",
                "--address=/#/",  # nothing else exists: there is no way out of this network
            ]
        )

    def set_services(self, services: Objects) -> None:
        """Take note of all Services."""
        with self._lock:
            self._services = services
            self._write()

    def set_endpoints(self, endpoints: Objects) -> None:
        """Take note of all endpoints."""
        with self._lock:
            self._endpoints = endpoints
            self._write()

    def wait(self) -> int:
        """Wait for the end of dnsmasq, which is an error, and return its exit status."""
        return self._dnsmasq.wait()

    def _write(self) -> None:
        text = names.hosts(self._services, self._endpoints)
        if text == self._file.read_text():
            return
        partial = self._file.with_suffix(".partial")
        partial.write_text(text)
        partial.rename(self._file)
        self._dnsmasq.send_signal(signal.SIGHUP)  # forget, and read the file again


class Volumes:
    """Makes a volume for each claim, and removes it after the claim."""

    def __init__(self, api: Api, root: Path) -> None:
        self._api = api
        self._root = root

    def provide(self, claims: Objects) -> None:
        """Make the volumes that `claims` wait for."""
        for volume in volumes.wanted(claims, self._root, NODE_NAME):
            Path(volume["spec"]["local"]["path"]).mkdir(parents=True, exist_ok=True)
            try:
                self._api.send("POST", "/api/v1/persistentvolumes", volume)
            except ApiError as error:
                if error.status != _ALREADY_THERE:
                    raise

    def remove(self, all_volumes: Objects) -> None:
        """Remove the volumes whose claim is gone, and what is in them."""
        for name, folder in volumes.released(all_volumes):
            try:
                self._api.send("DELETE", f"/api/v1/persistentvolumes/{name}")
            except ApiError as error:
                if error.status != _NOT_FOUND:
                    raise
            shutil.rmtree(folder, ignore_errors=True)


def main(state: Path) -> int:
    """Run until killed; return 1 if dnsmasq ends."""
    pki = state / "pki"
    admin = (str(pki / "ca.crt"), str(pki / "admin.crt"), str(pki / "admin.key"))
    api = Api(API_URL.removeprefix("https://"), *admin)
    dns = Names(state / "hosts")
    store = Volumes(api, state / "volumes")
    watches = {
        "/api/v1/services": dns.set_services,
        "/api/v1/endpoints": dns.set_endpoints,
        "/api/v1/persistentvolumeclaims": store.provide,
        "/api/v1/persistentvolumes": store.remove,
    }
    stop = threading.Event()
    for path, changed in watches.items():
        threading.Thread(target=api.watch, args=(path, changed, stop), daemon=True).start()
    status = dns.wait()
    stop.set()
    say(f"dnsmasq ended with status {status}")
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
