"""The release before this one: what the checkout's history has of it."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

_SOURCES = ("operator", "charts", "Dockerfile", "constraints.txt", "pyproject.toml")
"""What the image and the chart are made of."""
_GIT_S = 60.0


class NoEarlierError(Exception):
    """The history is not there, or too short; the message says what is missing."""


def unpack(checkout: Path, folder: Path) -> str:
    """Write the newest commit whose image or chart differs from the checkout's; return its id.

    With changes that are not committed that is HEAD; else the commit before the last one that
    changed anything of it.

    Raises:
        NoEarlierError: there is no such commit here.
    """
    commit = _earlier(checkout)
    packed = _git(checkout, "archive", commit)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
        # With the rights that files of a checkout have: layers of an image are compared by them.
        tree.extractall(folder, filter="data")
    return commit


def _earlier(checkout: Path) -> str:
    if _git(checkout, "status", "--porcelain", "--", *_SOURCES):
        return _text(checkout, "rev-parse", "HEAD")
    last = _text(checkout, "rev-list", "--max-count=1", "HEAD", "--", *_SOURCES)
    parents = _text(checkout, "rev-list", "--max-count=1", "--parents", last).split()[1:]
    if not parents:
        raise NoEarlierError(
            f"the history ends at {last[:12]}, the last commit that changed the image or the "
            "chart: there is no release before it to upgrade from; fetch more of the history"
        )
    return parents[0]


def _text(checkout: Path, *arguments: str) -> str:
    return _git(checkout, *arguments).decode().strip()


def _git(checkout: Path, *arguments: str) -> bytes:
    try:
        result = subprocess.run(
            ["git", "-C", str(checkout), *arguments],  # noqa: S607 - git is where the PATH has it
            check=True,
            capture_output=True,
            timeout=_GIT_S,
            # A hook of git sets some that name another repository.
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        )
    except OSError as error:
        raise NoEarlierError(f"git: {error}: an upgrade needs a release to start from") from error
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise NoEarlierError(
            f"git {arguments[0]}: {message}: an upgrade needs the history of {checkout}"
        ) from error
    return result.stdout
