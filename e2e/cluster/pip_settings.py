"""What a build needs of this machine's pip: its settings, and what they point at.

A machine may get its packages from a mirror, from folders, or through a proxy with its certificate.
pip knows all that; the build in an image does not, so it gets these settings, and none of them
ends up in the image.
"""

import ast
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.commands import run

_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_BUNDLE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_LINE = re.compile(r"""^(?P<section>[^.]+)\.(?P<option>[\w-]+)=(?P<value>['"].*['"])$""")
_FOLDERS_OF_INDEXES = ("index-url", "extra-index-url")
_USED = ("global", "install", ":env:")
_NOT_PASSED = ("cert", "cache-dir", "require-virtualenv", "user", "target", "prefix", "python")


def settings(listing: str) -> dict[str, str]:
    """Return option → value from what `pip config list` prints; the environment wins."""
    found: dict[str, dict[str, str]] = {section: {} for section in _USED}
    for line in listing.splitlines():
        if (match := _LINE.match(line.strip())) and match["section"] in found:
            found[match["section"]][match["option"]] = str(ast.literal_eval(match["value"]))
    merged: dict[str, str] = {}
    for section in _USED:
        merged |= found[section]
    return {option: value for option, value in merged.items() if option not in _NOT_PASSED}


def configuration(options: Mapping[str, str], *, has_bundle: bool) -> str:
    """Return a pip.conf with `options`."""
    lines = ["[global]"]
    if has_bundle:
        lines.append(f"cert = {_BUNDLE}")
    for option, value in sorted(options.items()):
        lines.append(f"{option} = {' '.join(value.split())}")
    return "\n".join(lines) + "\n"


def folders(options: Mapping[str, str]) -> list[Path]:
    """Return the folders of this machine that `options` name, to be mounted at the same place.

    Of an index the folder above: its pages link to files that lie beside it.
    """
    found: dict[Path, None] = {}
    for option, value in options.items():
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and not word.startswith("//"):
                found[path.parent if option in _FOLDERS_OF_INDEXES else path] = None
    return list(found)


def bundle(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of certificates that this machine trusts, None if it has none."""
    for name in _BUNDLE_VARIABLES:
        path = Path(environ.get(name, ""))
        if path.is_file():
            return path
    return Path(_BUNDLE) if Path(_BUNDLE).is_file() else None


def mounts(folder: Path) -> list[str]:
    """Return the volumes a build needs, as `source:target:ro`; a pip.conf is written to `folder`.

    Raises:
        ClusterError: pip does not answer.
    """
    listing = run([sys.executable, "-m", "pip", "config", "list"], timeout_s=60, check=False)
    options = settings(listing.stdout)
    certificates = bundle()
    file = folder / "pip.conf"
    file.write_text(configuration(options, has_bundle=certificates is not None))
    volumes = [f"{file}:/etc/pip.conf:ro"]
    volumes += [f"{path}:{path}:ro" for path in folders(options) if path.exists()]
    if certificates is not None:
        volumes.append(f"{certificates.resolve()}:{_BUNDLE}:ro")
    return volumes
