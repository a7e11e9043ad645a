"""Images without a registry and without Docker: Debian by debootstrap, the rest by buildah."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import debian, pip_settings
from e2e.cluster.commands import alone_in, run, run_long, say
from e2e.cluster.configuration import PAUSE_IMAGE
from e2e.cluster.dockerfile import Dockerfile

_BASE = "localhost/base:bookworm"
_BASE_PACKAGES = "python3,python3-venv,ca-certificates"
_PACKAGES = ("buildah", "debootstrap")
_TIMEOUT_S = 900.0
_BASE_TIMEOUT_S = 3600.0
"""Of the base image, which is made once, maybe while tests keep the machine busy."""
_MAX_LAYERS = 100  # about 3 GB
_SCRATCH = "scratch-"
_KEPT = 3
"""So many builds of a lasting stage stay: this checkout's, the release's before, a branch's."""
SPARK = "spark"
"""The stage of the Dockerfile that is the image for Spark; the other image is the last one."""
_USELESS = (
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def full_name(name: str) -> str:
    """Return `name` as a node looks it up: `redis:7` means `docker.io/library/redis:7`."""
    host, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    is_host = "." in host or ":" in host or host == "localhost"
    return name if is_host else f"docker.io/{name}"


def mounts_below(folder: Path, mounts: str) -> list[str]:
    """Return the mount points in a folder, the innermost first; `mounts`: as in /proc/mounts."""
    points = (line.split(" ")[1] for line in mounts.splitlines())
    return sorted((point for point in points if Path(point).is_relative_to(folder)), reverse=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder in which debootstrap may have been killed: not what is mounted there.

    Raises:
        ClusterError: something there cannot be unmounted; nothing is removed.
    """
    for point in mounts_below(folder, Path("/proc/mounts").read_text()):
        run(["umount", point], timeout_s=30)
    shutil.rmtree(folder)


class Builder:
    """Builds images into docker archives, which it keeps in the cache."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "images"
        self._storage = self._folder / "storage"

    def pause(self, program: Path) -> Path:
        """Return an archive of the image that holds a pod's namespaces; its one file is `program`.

        Raises:
            ClusterError: buildah failed.
        """
        with self._turn(), self._scratch() as context:
            shutil.copy2(program, context / "pause")
            dockerfile = context / "Dockerfile"
            dockerfile.write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
            self._build(context, dockerfile, PAUSE_IMAGE)
            return self._archive(PAUSE_IMAGE)

    def project(self, context: Path, name: str, stage: str | None = None) -> Path:
        """Return an archive of the project's image, built on Debian with the settings of our pip.

        Args:
            context: a checkout.
            name: of the image.
            stage: of its Dockerfile; None: the last one.

        Raises:
            ClusterError: the build failed; the message shows its end.
        """
        with self._turn(), self._scratch() as scratch:
            self._make_base()
            say(f"building {name}")
            volumes = pip_settings.mounts(scratch)
            content = Dockerfile((context / "Dockerfile").read_text(encoding="utf-8"))
            base = self._id(_BASE)
            images: dict[str, str] = {}

            def build(image: str, target: str | None) -> None:
                # Not by `--target`: that looks at all stages before it, and copies what they copy.
                dockerfile = scratch / "Dockerfile"
                dockerfile.write_text(content.text(target, images), encoding="utf-8")
                self._build(context, dockerfile, image, base=f"BASE={_BASE}", volumes=volumes)

            for each in content.lasting(stage):
                image = f"localhost/{each}:{content.key(each, context, base)}"
                if not self._id(image):
                    build(image, each)
                    self._forget_old(each)
                images[each] = image
            build(name, stage)
            return self._archive(name)

    def redis(self, name: str) -> Path:
        """Return an archive of an image with Debian's Redis, called `name`.

        Raises:
            ClusterError: the build failed.
        """
        with self._turn(), self._scratch() as context:
            self._make_base()
            say(f"building {name} of Debian's Redis")
            dockerfile = Path(__file__).with_name("redis.Dockerfile")
            self._build(context, dockerfile, name, base=f"BASE={_BASE}")
            return self._archive(name)

    def _make_base(self) -> None:
        if self._id(_BASE):
            return
        with self._scratch() as folder:
            root = folder / "root"
            run_long(
                [
                    *("debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}"),
                    *("bookworm", str(root), debian.archive()),
                ],
                log=self._folder / "debootstrap.log",
                what="making the base image, once: about a minute",
                timeout_s=_BASE_TIMEOUT_S,
            )
            for useless in _USELESS:
                shutil.rmtree(root / useless)
                (root / useless).mkdir()
            container = self._buildah("from", "scratch").strip()
            self._buildah("add", "--quiet", container, str(root), "/")
            self._buildah("commit", "--quiet", "--rm", container, _BASE)

    def _build(
        self,
        context: Path,
        dockerfile: Path,
        name: str,
        *,
        base: str | None = None,
        volumes: Sequence[str] = (),
    ) -> None:
        """Build an image; what did not change since the last time is taken from there.

        Layers of former builds are kept for that, until there are too many: then all that no image
        is made of goes, and the next build takes its time.
        """
        if len(self._buildah("images", "--all", "--quiet").split()) > _MAX_LAYERS:
            self._buildah("rmi", "--prune", "--force")
        arguments = [f"--volume={volume}" for volume in volumes]
        if base is not None:
            arguments.append(f"--build-arg={base}")
        self._buildah(
            *("bud", "--quiet", "--layers", "--isolation=chroot", "--network=host", "--pull-never"),
            *(f"--file={dockerfile}", f"--tag={full_name(name)}", *arguments, str(context)),
        )

    def _forget_old(self, stage: str) -> None:
        """Remove the builds of a lasting stage but for the last few; those in use stay."""
        these = f"--filter=reference=localhost/{stage}"
        listed = self._buildah("images", "--quiet", "--no-trunc", these)
        for old in listed.split()[_KEPT:]:
            self._buildah("rmi", old, check=False)

    def _archive(self, name: str) -> Path:
        """Return a docker archive of an image; made if that of this very image is not there."""
        full = full_name(name)
        label = re.sub(r"[^\w.]+", "_", full)
        archive = self._folder / f"{label}-{self._id(full)[:12]}.tar"
        if not archive.exists():
            for old in self._folder.glob(f"{label}-*.tar"):
                old.unlink()
            partial = archive.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            self._buildah("push", "--quiet", full, f"docker-archive:{partial}:{full}")
            partial.rename(archive)
        return archive

    def _id(self, name: str) -> str:
        """Return the id of an image; empty if no image has that name."""
        return self._buildah("images", "--quiet", "--no-trunc", name, check=False).strip()[7:]

    def _buildah(self, *arguments: str, check: bool = True) -> str:
        storage = ["--root", str(self._storage / "root"), "--runroot", str(self._storage / "run")]
        argv = ["nice", "buildah", *storage, *arguments]
        return run(argv, timeout_s=_TIMEOUT_S, check=check).stdout

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process at a time build, with the programs for it installed."""
        debian.install(_PACKAGES)
        with alone_in(self._folder):
            for left in self._folder.glob(f"{_SCRATCH}*"):
                remove_tree(left)  # of a build that was killed
            self._buildah("rm", "--all")
            yield

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Return a folder for the time being, beside the images: a file system that fits them."""
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=_SCRATCH))
        try:
            yield folder
        finally:
            remove_tree(folder)  # debootstrap that was stopped leaves mounts
