"""What spark-submit runs: `partq pipeline` with the arguments of the application.

Not one of partq's own modules, because spark-submit wants a file whose path is the same in every
image, whatever its Python: local:///opt/partq/pipeline.py
"""

import sys

from partq.cli.main import main

sys.argv.insert(1, "pipeline")
main()
