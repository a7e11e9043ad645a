#!/usr/bin/env bash
# See that there is a Java for Spark: JAVA_HOME's, or on the PATH. As root on Debian the headless
# runtime is installed where it is missing; nobody else's system is touched.
set -euo pipefail

package=openjdk-17-jre-headless

[[ -n ${JAVA_HOME:-} && -x $JAVA_HOME/bin/java ]] && exit 0
command -v java >/dev/null && exit 0
if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing %s (a minute, once) ... ' "$package"
  log=$(mktemp)
  if apt-get update -qq >"$log" 2>&1 &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >>"$log" 2>&1; then
    rm -f "$log"
    echo "done"
    exit 0
  fi
  echo "failed"
  tail -n 15 "$log" >&2
  rm -f "$log"
fi
echo "no java for Spark: as root, apt-get install -y $package; elsewhere Java 17 or 21, and JAVA_HOME" >&2
exit 1
