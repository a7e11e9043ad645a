#!/usr/bin/env bash
# Render the chart with its defaults into dist/install.yaml, its namespace included.
#
# KUBE is the version of Kubernetes it is for: rules that older servers refuse are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

namespace=partq-system
: "${KUBE:?usage: KUBE=1.30.0 scripts/manifests.sh}"
helm=$(command -v helm || .venv/bin/python -c "from e2e.cluster import binaries; print(binaries.helm())")

mkdir -p dist
partial=$(mktemp dist/install.XXXXXX)
trap 'rm -f "$partial"' EXIT
printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n' "$namespace" >"$partial"
"$helm" template partq charts/partq --namespace "$namespace" --no-hooks \
  --kube-version "$KUBE" >>"$partial"
chmod 644 "$partial"
mv "$partial" dist/install.yaml
echo "dist/install.yaml: for Kubernetes $KUBE"
