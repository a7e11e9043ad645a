#!/usr/bin/env bash
# See that the tests of the page have a Chromium: the one on the PATH. As root on Debian what is
# missing is installed; nobody else's system is touched. Playwright, which drives it, downloads none.
#
# Without it these tests are skipped, unless PARTQ_REQUIRE_CHROMIUM=1 or CI=true.
set -euo pipefail

command -v chromium >/dev/null && exit 0
if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing chromium ... '
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends chromium) >/dev/null && echo "done" || echo "failed"
fi
command -v chromium >/dev/null && exit 0
if [[ ${PARTQ_REQUIRE_CHROMIUM:-} == 1 || ${CI:-} == true ]]; then
  echo "no chromium, and PARTQ_REQUIRE_CHROMIUM=1 or CI=true" >&2
  exit 1
fi
echo "no chromium: the tests of the page are skipped" >&2
