#!/usr/bin/env bash
# See that the tests of the SQL fence have a MariaDB: the server on the PATH. As root on Debian what is
# missing is installed, without a service; nobody else's system is touched. Their PostgreSQL is the
# system's, or that of the wheel `pgserver` in .venv.
#
# Without it these tests are skipped, unless PARTQ_REQUIRE_MARIADB=1 or CI=true.
set -euo pipefail
PATH=$PATH:/usr/sbin

command -v mariadbd >/dev/null && exit 0
if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
  printf 'installing mariadb-server-core ... '
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends mariadb-server-core) >/dev/null && echo "done" || echo "failed"
fi
command -v mariadbd >/dev/null && exit 0
if [[ ${PARTQ_REQUIRE_MARIADB:-} == 1 || ${CI:-} == true ]]; then
  echo "no mariadbd, and PARTQ_REQUIRE_MARIADB=1 or CI=true" >&2
  exit 1
fi
echo "no mariadbd: the tests of the SQL fence on MariaDB are skipped" >&2
