"""Render the chart with its defaults into dist/, for `kubectl apply -f` without helm.

usage: KUBE=1.30.0 python scripts/manifests.py [FOLDER] [options of helm]

KUBE is the version of Kubernetes that they are for: rules that older servers refuse are left out.
Three files: what is deleted together is in one, and nothing in it that anybody wants to keep.
NAMESPACE and RELEASE, by default `partq-system` and `partq`, are for a second installation.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.cluster import binaries

ROOT = Path(__file__).resolve().parents[1]
RELEASE = os.environ.get("RELEASE", "partq")
NAMESPACE = os.environ.get("NAMESPACE", "partq-system")
PASSWORD = re.compile(r'^  password: "?([A-Za-z0-9]{16,128})"?$', re.MULTILINE)

CRDS = """\
# The kinds PartitionedQueue and ConsumerGroup, for Kubernetes {version}.
#
# WARNING: `kubectl delete -f crds.yaml` deletes every queue and every group of the cluster, with
# all messages, and does not return while no operator runs. Delete the queues first, and wait:
#
#   kubectl delete pq --all --all-namespaces
#
# docs/kubernetes.md, "Without helm", has the whole way back.
"""
OPERATOR = """\
# The operator, for Kubernetes {version}. First: kubectl create namespace {namespace}
#
# `kubectl delete -f operator.yaml` harms no queue: brokers and consumers continue, and an operator
# that is applied again takes over. Queues that are deleted meanwhile are `Terminating` until then.
"""
REDIS = """\
# Redis in the namespace {namespace}, with the messages of all queues, for Kubernetes {version}.
#
# WARNING: without it nothing is published or consumed. Its volume stays when you delete this file,
# and with it the messages; deleting the namespace or the volume claim takes them.
# This file holds the password of Redis: keep it, and keep it out of version control.
"""
HEADS = {"crds.yaml": CRDS, "operator.yaml": OPERATOR, "redis.yaml": REDIS}


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    version = os.environ["KUBE"]
    folder.mkdir(parents=True, exist_ok=True)
    rendered = render(version, known_password(folder / "redis.yaml"), sys.argv[2:])
    for name, head in HEADS.items():
        path = folder / name
        partial = path.with_suffix(".partial")
        # It may hold a password, so nobody else reads it.
        partial.touch(mode=0o600 if name == "redis.yaml" else 0o644)
        text = head.format(namespace=NAMESPACE, version=version)
        partial.write_text("---\n".join([text, *rendered[name]]))
        partial.replace(path)
        sys.stdout.write(f"{path}: for Kubernetes {version}\n")


def known_password(path: Path) -> str:
    """Return the password of an earlier rendering, else a new one."""
    found = PASSWORD.search(path.read_text()) if path.exists() else None
    return found[1] if found else secrets.token_hex(16)


def render(version: str, password: str, options: list[str]) -> dict[str, list[str]]:
    """Return the documents of each file."""
    command = [
        *(shutil.which("helm") or str(binaries.helm()), "template", RELEASE, "charts/partq"),
        *("--namespace", NAMESPACE, "--no-hooks", "--kube-version", version),
        *("--set", f"redis.builtIn.password={password}", *options),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    files: dict[str, list[str]] = {name: [] for name in HEADS}
    for document in re.split(r"^---\n", done.stdout, flags=re.MULTILINE):
        if source := re.search(r"^# Source: partq/templates/(\S+)$", document, re.MULTILINE):
            files.get(source[1], files["operator.yaml"]).append(document)
    return files


if __name__ == "__main__":
    main()
