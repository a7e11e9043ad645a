"""The certificate that a broker shows, and whom it trusts among the others, as files say it.

The files may change while the broker runs: each handshake takes what is there. A renewed
certificate costs no connection and no restart.
"""

import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from partq.errors import SettingsError
from partq.wire import tls

CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
"""The names in a Secret of the type `kubernetes.io/tls`, as cert-manager fills it."""
RELOAD_GAP_S = 5.0
"""How often the files are looked at, at most."""
MAX_FILE_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LoadedFiles:
    digest: bytes
    server: ssl.SSLContext
    trusted: ssl.SSLContext


class BrokerTls:
    """The TLS of one broker, by the files of a folder; `clock` counts seconds.

    The folder holds the certificate with its chain, its key and, unless the system's CAs signed it,
    the CA's certificate.

    Raises:
        SettingsError: a file is missing, cannot be read, or does not fit the others.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._looked_at = clock()
        self._loaded = _load(folder)
        self._trouble = ""
        self.server = _server_context()
        """For the server's socket. It holds no certificate: each handshake gets the current one."""
        self.server.sni_callback = self._choose

    @property
    def trusted(self) -> ssl.SSLContext:
        """For calls to other brokers."""
        self._reload()
        return self._loaded.trusted

    @property
    def is_refused(self) -> bool:
        """Whether the files hold what cannot be used: what was there before continues."""
        self._reload()
        return bool(self._trouble)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Give a handshake its certificate; called whether or not the client names a host."""
        self._reload()
        connection.context = self._loaded.server

    def _reload(self) -> None:
        now = self._clock()
        if now - self._looked_at < RELOAD_GAP_S:
            return
        self._looked_at = now
        try:
            if _digest(_read(self._folder)) != self._loaded.digest:
                self._loaded = _load(self._folder)
                _log.info("certificate: the one now in %s is in use", self._folder)
        except SettingsError as error:
            if error.message != self._trouble:
                _log.error("certificate: %s; the previous one stays in use", error)
            self._trouble = error.message
        else:
            self._trouble = ""


def _load(folder: Path) -> _LoadedFiles:
    # Files that are replaced from here on differ from the digest, and are loaded at the next look.
    files = _read(folder)
    server = _server_context()
    try:
        # Without a password, OpenSSL would ask for that of a locked key at the terminal.
        server.load_cert_chain(folder / CERTIFICATE, folder / KEY, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SettingsError(
            f"{folder}: {CERTIFICATE} and {KEY}: got {reason}, expected a certificate and its key, "
            "as PEM, without a password"
        ) from error
    # Some who write such Secrets leave an empty entry where there is no CA to name.
    ca_file = folder / CA if files[CA].strip() else None
    return _LoadedFiles(_digest(files), server, tls.trust(ca_file=ca_file))


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = tls.MIN_VERSION
    return context


def _read(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files; empty: there is no CA."""
    found = {}
    for name in (CERTIFICATE, KEY, CA):
        path = folder / name
        try:
            with path.open("rb") as file:
                found[name] = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            if name != CA:
                raise SettingsError(
                    f"{path}: it is not there, expected it in PARTQ_TLS_DIR"
                ) from None
            found[name] = b""
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from error
        if len(found[name]) > MAX_FILE_BYTES:
            raise SettingsError(f"{path}: got more than {MAX_FILE_BYTES} bytes, expected fewer")
    return found


def _digest(files: Mapping[str, bytes]) -> bytes:
    """Return what changes with the files, and is no key."""
    parts = (hashlib.sha256(files[name]).digest() for name in (CERTIFICATE, KEY, CA))
    return hashlib.sha256(b"".join(parts)).digest()
