#!/usr/bin/env bash
# See that there is a Java for Spark: JAVA_HOME's, or on the PATH. As root on Debian the headless
# runtime is installed where it is missing; nobody else's system is touched.
set -euo pipefail

[[ -n ${JAVA_HOME:-} && -x $JAVA_HOME/bin/java ]] && exit 0
command -v java >/dev/null && exit 0
if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing openjdk-17-jre-headless ... '
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
  echo "done"
  exit 0
fi
echo "no java for Spark: as root, apt-get install -y openjdk-17-jre-headless" >&2
exit 1
