"""Bodies as the API server sends them, for the tests of the pure parts."""

from partq.resources import group_document, queue_document

UID = "0f3a9c1e-1111-4222-8333-123456789abc"
POD_UID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


def queue_body(name="orders", *, namespace="shop", generation=1, annotations=None, **spec):
    body = queue_document(name, **spec)
    body["metadata"] |= {
        "namespace": namespace,
        "uid": UID,
        "generation": generation,
        "resourceVersion": "7",
        "annotations": annotations or {},
        "managedFields": [{"manager": "kubectl"}],
    }
    return body


def group_body(name="workers", queue="orders", *, namespace="shop", status=None, **spec):
    selector = {"matchLabels": {"app": name}}
    body = group_document(name, queue, **{"selector": selector, **spec})
    body["metadata"] |= {
        "namespace": namespace,
        "uid": "11111111-1111-4222-8333-123456789abc",
        "generation": 1,
        "resourceVersion": "7",
    }
    return {**body, "status": status} if status else body


def pod_body(
    name="workers-5d7f9c-abcde",
    *,
    uid=POD_UID,
    namespace="shop",
    labels=None,
    owner="ReplicaSet",
    ip="10.0.0.7",
    ready=True,
    ended=False,
    deletion_grace=None,
    phase="Running",
    waiting=None,
    node="",
    tolerations=(),
    annotations=None,
):
    owners = [{"kind": owner, "name": "workers-5d7f9c", "controller": True}] if owner else []
    metadata = {
        "uid": uid,
        "name": name,
        "namespace": namespace,
        "labels": {"app": "workers", "pod-template-hash": "5d7f9c", **(labels or {})},
        "ownerReferences": owners,
        "annotations": annotations or {},
        "creationTimestamp": "2026-11-20T10:00:00Z",
    }
    if deletion_grace is not None:
        metadata["deletionTimestamp"] = "2026-11-20T11:00:00Z"
        metadata["deletionGracePeriodSeconds"] = deletion_grace
    state = {"terminated": {"exitCode": 0}} if ended else {"running": {}}
    if waiting is not None:
        state = {"waiting": waiting}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "tolerations": list(tolerations)},
        "status": {
            "phase": phase,
            "podIP": ip,
            "podIPs": [{"ip": ip}] if ip else [],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }
