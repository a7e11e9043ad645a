#!/usr/bin/env bash
# Run the tests of the data source with other versions of Spark: `scripts/spark_versions.sh 4.0.5`.
# Each version has a separate environment, which looks into .venv for everything else.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=(tests/spark/read/test_{batch_reading,stream_reading,rolled_back,filters,stream_origin,group_lease,trigger_delay}.py tests/spark/write/test_sink.py)
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

for version in "$@"; do
  home=.venv/spark-$version
  if [[ ! -f $home/.installed ]]; then
    .venv/bin/python -m venv "$home"
    "$home/bin/python" -m pip install --disable-pip-version-check --no-input --quiet "pyspark==$version"
    # Behind its own packages; `site` reads what is installed in place there, too.
    echo "import site; site.addsitedir('$site')" \
      >"$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/partq.pth"
    touch "$home/.installed"
  fi
  echo "Spark $("$home/bin/python" -c 'import pyspark; print(pyspark.__version__)')"
  # Older ones leave their sockets to the garbage collector.
  "$home/bin/python" -m pytest -p no:xdist "${tests[@]}" \
    -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
done
