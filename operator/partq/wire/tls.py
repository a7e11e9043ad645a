"""TLS as both sides need it: whom a client trusts, and what was wrong when it did not work."""

import ssl
from pathlib import Path

from partq.errors import SettingsError

MIN_VERSION = ssl.TLSVersion.TLSv1_2

# OpenSSL's numbers for a chain that ends at nobody who is trusted.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})


def trust(*, ca_file: Path | str | None = None, ca_pem: str | None = None) -> ssl.SSLContext:
    """Return how a client checks brokers: certificate and name, always.

    Its CA must be among the certificates given; with none given (None or an empty text), among
    the system's.

    Raises:
        SettingsError: what is given holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file, cadata=ca_pem)
    except (OSError, TypeError) as error:  # no file, no certificate; a text that is not ASCII
        where = f"CA file {ca_file}" if ca_file is not None else "CA certificates"
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingsError(f"{where}: got {reason}, expected certificates as PEM") from error
    context.minimum_version = MIN_VERSION
    return context


def explain(error: BaseException) -> str | None:
    """Say why a connection failed when that was due to TLS; None: it was not."""
    match error.__cause__:
        case ssl.SSLCertVerificationError() as refused:
            advice = (
                "; name the CA that signed it (ca_file, --ca-file, PARTQ_CA_FILE)"
                if refused.verify_code in _UNKNOWN_ISSUER
                else ""
            )
            return f"its certificate is refused: {refused.verify_message}{advice}"
        case ssl.SSLError() as failed:
            if failed.reason == "WRONG_VERSION_NUMBER":
                return "it does not speak TLS: its URL begins with http://"
            return f"TLS failed: {failed.reason or failed}"
    return None
