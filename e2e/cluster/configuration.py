"""The files and command lines of a cluster's processes. Pure: values in, text out.

JSON is YAML, so what Kubernetes reads as YAML is written as JSON.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE_NAME = "node"
NODE_IP = "192.168.64.2"
POD_CIDR = "10.244.0.0/23"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
API_URL = f"https://{NODE_IP}:6443"
PAUSE_IMAGE = "localhost/pause:1"
CNI_BIN = "/usr/lib/cni"

_MAX_PODS = 250
_ETCD_URL = "http://127.0.0.1:2379"


@dataclass(frozen=True)
class Layout:
    """Where things are: the binaries, and the folder of the cluster's state."""

    binaries: Path
    state: Path

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens."""
        return self.state / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """The control group of the pods; another for each folder, as clusters can run at once."""
        return f"partq-e2e-{zlib.crc32(str(self.state).encode()):08x}"

    def pki(self, file: str) -> str:
        """Return the path of a key or certificate."""
        return str(self.state / "pki" / file)

    def kubeconfig(self, who: str) -> str:
        """Return the path of the kubeconfig of `who`."""
        return str(self.state / "kubeconfigs" / who)


def kubeconfig(ca: bytes, certificate: bytes, key: bytes) -> str:
    """Return a kubeconfig for the bearer of `certificate`."""
    user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    cluster = {"server": API_URL, "certificate-authority-data": _base64(ca)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "partq-e2e", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "partq-e2e", "context": {"cluster": "partq-e2e", "user": "user"}}],
        "current-context": "partq-e2e",
    }
    return json.dumps(content, indent=1)


def files(layout: Layout) -> dict[str, str]:
    """Return the content of every configuration file, by its path below the state."""
    return {
        "containerd.toml": _containerd(layout),
        "cni/10-pods.conflist": json.dumps(_cni(layout), indent=1),
        "kubelet.json": json.dumps(_kubelet(layout), indent=1),
    }


def early(layout: Layout) -> dict[str, list[str]]:
    """Return the command lines of what is started at once: the API and what waits for it by itself.

    The kubelet is among them because it first looks for Docker, for five seconds.
    """
    binaries = layout.binaries
    etcd = {
        # In the machine's memory: on a busy disk each write would take a second, and nobody reads
        # it again.
        "data-dir": "/run/etcd",
        "listen-client-urls": _ETCD_URL,
        "advertise-client-urls": _ETCD_URL,
        "listen-peer-urls": "http://127.0.0.1:2380",
    }
    apiserver = {
        "etcd-servers": _ETCD_URL,
        # Not 127.0.0.1: pods reach the API at this address, behind its Service.
        "advertise-address": NODE_IP,
        "secure-port": "6443",
        "service-cluster-ip-range": SERVICE_CIDR,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "client-ca-file": layout.pki("ca.crt"),
        "tls-cert-file": layout.pki("apiserver.crt"),
        "tls-private-key-file": layout.pki("apiserver.key"),
        "kubelet-certificate-authority": layout.pki("ca.crt"),
        "kubelet-client-certificate": layout.pki("kubelet-client.crt"),
        "kubelet-client-key": layout.pki("kubelet-client.key"),
        # By its address: nobody resolves the node's name, which `logs` and `exec` would ask for.
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": layout.pki("sa.pub"),
        "service-account-signing-key-file": layout.pki("sa.key"),
    }
    kubelet = {
        "config": str(layout.state / "kubelet.json"),
        "kubeconfig": layout.kubeconfig("kubelet"),
        "root-dir": str(layout.state / "kubelet"),
        "hostname-override": NODE_NAME,
        "node-ip": NODE_IP,
        "container-runtime": "remote",
        "container-runtime-endpoint": f"unix://{layout.containerd_socket}",
    }
    return {
        "etcd": _command(binaries / "etcd", etcd),
        "kube-apiserver": _command(binaries / "kube-apiserver", apiserver),
        "containerd": _command(
            binaries / "containerd", {"config": str(layout.state / "containerd.toml")}
        ),
        "kubelet": _command(binaries / "kubelet", kubelet),
    }


def late(layout: Layout) -> dict[str, list[str]]:
    """Return the command lines of what is started once the API answers."""
    binaries = layout.binaries
    controller_manager = {
        "kubeconfig": layout.kubeconfig("controller-manager"),
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "root-ca-file": layout.pki("ca.crt"),
        "service-account-private-key-file": layout.pki("sa.key"),
        "cluster-signing-cert-file": layout.pki("ca.crt"),
        "cluster-signing-key-file": layout.pki("ca.key"),
        # By default it holds itself back, which shows where much happens at once: a namespace with
        # a few pods takes a minute to go.
        "kube-api-qps": "200",
        "kube-api-burst": "400",
    }
    scheduler = {"kubeconfig": layout.kubeconfig("scheduler"), "leader-elect": "false"}
    proxy = {
        "kubeconfig": layout.kubeconfig("proxy"),
        "proxy-mode": "iptables",
        "cluster-cidr": POD_CIDR,
        "hostname-override": NODE_NAME,
        "conntrack-max-per-core": "0",  # the table belongs to the whole host: left as it is
        "oom-score-adj": "0",
    }
    return {
        "kube-controller-manager": _command(
            binaries / "kube-controller-manager", controller_manager
        ),
        "kube-scheduler": _command(binaries / "kube-scheduler", scheduler),
        "kube-proxy": _command(binaries / "kube-proxy", proxy),
    }


def _command(program: Path, flags: Mapping[str, str]) -> list[str]:
    return [str(program), *(f"--{name}={value}" for name, value in flags.items())]


def _containerd(layout: Layout) -> str:
    return f"""\
version = 2
root = "{layout.state}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]

[grpc]
address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj, and a container would not start.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_BIN}"
conf_dir = "{layout.state}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{layout.binaries}/runc"
SystemdCgroup = false
"""


def _cni(layout: Layout) -> dict[str, Any]:
    # Point to point: every packet passes the node's iptables, which would not see those
    # between pods on a bridge, unless the module br_netfilter is loaded. No masquerading: brokers
    # see the addresses of their clients.
    addresses = {
        "type": "host-local",
        "dataDir": str(layout.state / "addresses"),
        "ranges": [[{"subnet": POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    pods = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [pods]}


def _kubelet(layout: Layout) -> dict[str, Any]:
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "authentication": {
            "x509": {"clientCAFile": layout.pki("ca.crt")},
            "webhook": {"enabled": True},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki("kubelet.crt"),
        "tlsPrivateKeyFile": layout.pki("kubelet.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [NODE_IP],
        "resolvConf": str(layout.state / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "enforceNodeAllocatable": [],
        # It shares its disk and its memory with the rest of the machine: it gives up last.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # an image that is removed could not be pulled again
        "failSwapOn": False,
        "maxPods": _MAX_PODS,
        "oomScoreAdj": 0,
        "volumePluginDir": str(layout.state / "volume-plugins"),
        "nodeStatusUpdateFrequency": "1s",  # a new node is Ready at the second update, at best
        "kubeAPIQPS": 50,
        "kubeAPIBurst": 100,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
