"""The keys and certificates of a local cluster, made by openssl: new ones for each `up`."""

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run

_DAYS = "30"  # the cluster lives for hours
_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Identity:
    """The subject of a certificate: a name, a group, and the addresses where it serves."""

    file: str
    name: str
    group: str = ""
    serves: tuple[str, ...] = ()


def identities(node_name: str, node_ip: str, api_ip: str) -> tuple[Identity, ...]:
    """Return everyone who needs a certificate."""
    api_names = ["", ".default", ".default.svc", ".default.svc.cluster.local"]
    api = (*(f"DNS:kubernetes{rest}" for rest in api_names), f"IP:{api_ip}", f"IP:{node_ip}")
    return (
        Identity("apiserver", "kube-apiserver", serves=(*api, "DNS:localhost", "IP:127.0.0.1")),
        Identity(
            "kubelet",
            f"system:node:{node_name}",
            "system:nodes",
            serves=(f"IP:{node_ip}", f"DNS:{node_name}"),
        ),
        Identity("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("proxy", "system:kube-proxy"),
    )


def make(folder: Path, people: tuple[Identity, ...]) -> None:
    """Write `ca.crt`, `ca.key`, a `.crt` and `.key` for each of `people`, and `sa.key`, `sa.pub`.

    Raises:
        ClusterError: openssl failed.
    """
    folder.mkdir(mode=0o700)
    _openssl(
        folder, "req", "-x509", *_EC_KEY, *_files("ca"), "-days", _DAYS, "-subj", "/CN=partq-e2e"
    )
    for person in people:
        _certify(folder, person)
    _openssl(folder, "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "sa.key")
    _openssl(folder, "ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _certify(folder: Path, person: Identity) -> None:
    organisation = f"/O={person.group}" if person.group else ""
    usage = "clientAuth,serverAuth" if person.serves else "clientAuth"
    extensions = [
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        f"extendedKeyUsage={usage}",
    ]
    if person.serves:
        extensions += ["-addext", f"subjectAltName={','.join(person.serves)}"]
    _openssl(
        folder,
        *("req", "-x509", *_EC_KEY, *_files(person.file), "-CA", "ca.crt", "-CAkey", "ca.key"),
        *("-days", _DAYS, "-subj", f"{organisation}/CN={person.name}", *extensions),
    )


def _files(name: str) -> tuple[str, ...]:
    return "-keyout", f"{name}.key", "-out", f"{name}.crt"


def _openssl(folder: Path, *arguments: str) -> None:
    run(["openssl", *arguments], timeout_s=_TIMEOUT_S, cwd=folder)
