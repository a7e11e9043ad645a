#!/usr/bin/env bash
# Make .venv and install partq there with the extras given: scripts/setup.sh lab,spark
#
# Needs Python 3.11 with pip; no root, and nothing outside this directory is changed. PYTHON names
# another interpreter. A repeat with the same pyproject.toml, lock and extras
# returns at once. The versions are those of constraints-all.txt: `make lock` renews them.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=${1:?usage: scripts/setup.sh EXTRAS}
root=$PWD
venv=.venv
log=$venv/setup.log
apt_line="apt-get install -y python3 python3-pip python3-venv make"

fail() {
  echo "setup: $*" >&2
  exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  if [[ -n ${PYTHON:-} ]]; then
    is_new_enough "$PYTHON" && echo "$PYTHON" && return
    fail "PYTHON=$PYTHON is $("$PYTHON" --version 2>&1 | head -n 1 || true); Python 3.11 or newer is needed"
  fi
  for candidate in python3 python3.{11..19} python; do
    is_new_enough "$candidate" && echo "$candidate" && return
  done
  fail "found $(command -v python3 >/dev/null && python3 --version 2>&1 || echo "no python3"); Python 3.11 or newer is needed." \
    $'\n'"  On Debian 12, Ubuntu 24.04 or newer: $apt_line"$'\n'"  Elsewhere: make PYTHON=/path/to/python3.11 ..."
}

# Run a step: one line on the terminal, its output in the log, of which a failure shows the end.
step() {
  local name=$1 began=$SECONDS
  shift
  printf '%s ... ' "$name"
  if "$@" >>"$log" 2>&1; then
    echo "done ($((SECONDS - began)) s)"
  else
    echo "failed"
    tail -n 15 "$log" >&2
    fail "$name failed; all of it is in $log"
  fi
}

make_venv() {
  "$python" -m venv --clear "$venv" && "$venv/bin/python" -m pip --version && return
  # Debian without python3-venv has no ensurepip: the system's pip fills the new environment.
  echo "no ensurepip: taking the system's pip"
  "$python" -m venv --clear --without-pip "$venv" || return
  "$python" -m pip --python "$venv/bin/python" install pip && return
  "$python" -m pip install pip \
    --target "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" && return
  echo "neither ensurepip nor a system pip was found: $apt_line"
  return 1
}

# Two makes at once: the second waits for the first.
if command -v flock >/dev/null; then
  exec 9>.venv.lock
  flock 9
fi

if ! { is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  python=$(find_python)
  log=$(mktemp)
  step "making $venv with $("$python" --version 2>&1)" make_venv
  mv "$log" "$venv/setup.log"
  log=$venv/setup.log
fi

key=$("$venv/bin/python" - "$root" "$extras" <<'PY'
import hashlib, pathlib, sys
files = ["pyproject.toml", "constraints-all.txt"]
parts = [sys.version, *sys.argv[1:], *(pathlib.Path(file).read_text(encoding="utf-8") for file in files)]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
)
stamp=$venv/.installed-${extras//,/-}
if [[ -x $venv/bin/partq && -f $stamp && $(<"$stamp") == "$key" ]]; then
  exit 0
fi
# What is needed comes from the lock, with the hashes of its files; what is here has none, so it is apart.
# The build backend is in the lock too: without isolation pip fetches nothing past the hashes.
# Python compiles what it imports: to compile all of it takes as long as to install it.
pip() { "$venv/bin/python" -m pip install --no-compile --disable-pip-version-check --no-input "$@"; }
locked=$venv/locked.txt
"$venv/bin/python" scripts/lock.py print "build,$extras" >"$locked" || exit 1
step "installing what partq[$extras] needs into $venv (a minute or two when nothing is cached)" \
  pip --require-hashes --requirement "$locked"
step "installing partq into $venv, in place" pip --no-deps --no-build-isolation --editable .
echo "$key" >"$stamp"
