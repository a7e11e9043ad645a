#!/usr/bin/env bash
# See that the tests of the operator have an etcd and a kube-apiserver: those of KUBEBUILDER_ASSETS,
# or those in the cache. On Debian 12 as root they are made when they are missing: etcd comes from a
# package, Kubernetes is built from Debian's source, once, in 5 to 15 minutes.
#
# Without them the tests that need them are skipped, unless PARTQ_REQUIRE_APISERVER=1 or CI=true:
# then all has to be there, and a helm for the chart's tests as well, which is small.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${PARTQ_REQUIRE_APISERVER:-} == 1 || ${CI:-} == true ]]; then
  command -v helm >/dev/null || .venv/bin/python -m e2e.cluster binaries --only helm >/dev/null
  .venv/bin/python -m e2e.cluster binaries --only apiserver >/dev/null && exit 0
  echo "no kube-apiserver, and PARTQ_REQUIRE_APISERVER=1 or CI=true" >&2
  exit 1
fi
.venv/bin/python -m e2e.cluster binaries --only apiserver >/dev/null && exit 0
echo "no kube-apiserver: the operator's tests against one are skipped" >&2
