"""A CA of a test's own: its certificates, folders that change as a kubelet changes them, peers."""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import trustme

LOOPBACK = ("127.0.0.1", "localhost")

_snapshot_numbers = count()


class Authority:
    """Signs certificates; nobody else trusts it."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    @property
    def pem(self) -> bytes:
        """What is to be trusted."""
        return self._ca.cert_pem.bytes()

    def issue(self, *names: str) -> dict[str, bytes]:
        """Return the entries of a Secret for these names; without any, for loopback."""
        leaf = self._ca.issue_cert(*(names or LOOPBACK))
        return {
            "tls.crt": b"".join(each.bytes() for each in leaf.cert_chain_pems),
            "tls.key": leaf.private_key_pem.bytes(),
            "ca.crt": self.pem,
        }


def mount(folder: Path, entries: Mapping[str, bytes]) -> Path:
    """Put the entries of a Secret there, all at once in the place of those that are there.

    The files are links into `..data`, which is a link that is replaced.
    """
    snapshot = folder / f"..{next(_snapshot_numbers)}"
    snapshot.mkdir(parents=True)
    for name, content in entries.items():
        (snapshot / name).write_bytes(content)
    new = folder / "..data_tmp"
    new.symlink_to(snapshot.name)
    os.replace(new, folder / "..data")
    for name in {path.name for path in folder.iterdir() if not path.name.startswith("..")}:
        if name not in entries:
            (folder / name).unlink()
    for name in entries:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data", name))
    return folder


class Connection:
    """A TLS connection in memory, from a client that checks `host` to a server.

    Raises:
        ssl.SSLError: one of them refuses the other.
    """

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(up, down, server_side=True)
        self.client = client.wrap_bio(down, up, server_hostname=host)
        waiting = [self.client, self.server]
        while waiting:
            side = waiting.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)

    @property
    def serial(self) -> str:
        """The serial number of the server's certificate."""
        certificate: dict[str, Any] = self.client.getpeercert() or {}
        return str(certificate["serialNumber"])

    def carry(self, data: bytes) -> bytes:
        """Send something to the server and back, and return it."""
        self.client.write(data)
        self.server.write(self.server.read(len(data)))
        return self.client.read(len(data))


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that refuses the certificate is what the test is about."""


@contextmanager
def serve(folder: Path | None) -> Iterator[int]:
    """Serve with the certificate of a folder, or by plain HTTP, and return the port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        if folder is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
            # The handshake is left to the threads: accepting continues.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
