#!/usr/bin/env bash
# Run a command with what others leave of the processors: setsid scripts/beside.sh COMMAND...
#
# Where the kernel shares processors out by session, `nice` counts within one session only. So the
# session that this begins gets the lowest weight, too.
set -euo pipefail

if [[ -w /proc/self/autogroup ]]; then
  read -r _ _ _ _ _ session _ </proc/self/stat
  # Another session is that of the caller.
  [[ $session != $$ ]] || echo 19 >/proc/self/autogroup || true # a kernel bounds how often
fi
exec nice -n 19 "$@"
