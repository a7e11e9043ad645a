"""Volumes of the local cluster: a folder of the node for each claim. Pure."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from e2e.cluster.api_watch import Objects

CLASS = "standard"
_LABEL = "partq.dev/e2e-volume"

STORAGE_CLASS: Mapping[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "partq.dev/e2e",
    "reclaimPolicy": "Retain",
    "volumeBindingMode": "Immediate",
}


def wanted(claims: Objects, root: Path, node: str) -> Iterator[Mapping[str, Any]]:
    """Return a volume for each claim that waits for one.

    The volumes are of the kind `local`, to which `fsGroup` applies as it does to a disk of a cloud:
    a pod that is not root and sets none cannot write to its volume here, as it could not there.
    """
    for (namespace, name), claim in claims.items():
        spec, metadata = claim["spec"], claim["metadata"]
        is_ours = spec.get("storageClassName") == CLASS
        if not is_ours or spec.get("volumeName") or metadata.get("deletionTimestamp"):
            continue
        volume = f"claim-{metadata['uid']}"
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {_LABEL: "true"}},
            "spec": {
                "storageClassName": CLASS,
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": namespace,
                    "name": name,
                    "uid": metadata["uid"],
                },
                "local": {"path": str(root / volume)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }


def released(volumes: Objects) -> Iterator[tuple[str, Path]]:
    """Return name and folder of each volume of ours whose claim is gone."""
    for (_, name), volume in volumes.items():
        is_ours = _LABEL in volume["metadata"].get("labels", {})
        if is_ours and volume.get("status", {}).get("phase") == "Released":
            yield name, Path(volume["spec"]["local"]["path"])
