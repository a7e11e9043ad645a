"""The entry point `partq`: starts the commands, or says which extra to install for them."""

import sys

from partq.cli import interrupts
from partq.cli.interrupts import INTERRUPTED
from partq.cli.output import CLOSED_PIPE, OutputError, open_output

_EXTRAS = {
    "click": "cli",
    "pydantic": "cli",
    "rich": "cli",
    "yaml": "cli",
    "hiredis": "embedded",
    "prometheus_client": "embedded",
    "redis": "embedded",
    "lupa": "lab",
    "psutil": "lab",
    "matplotlib": "pipeline",
    "numpy": "pipeline",
    "pyarrow": "pipeline",
    "py4j": "spark",
    "pyspark": "spark",
    "kopf": "operator",
    "kubernetes": "operator",
}
"""Which extra brings a package that a command imports."""
LABORATORY = {"bench", "chaos", "demo", "simulate"}
"""The commands that need the extra `lab`, which has what `cli` and `embedded` have and more."""


def main() -> None:
    """Run `partq` with the arguments of the process."""
    interrupts.note_process()
    interrupts.end_at_once()
    output = open_output()
    try:
        _run()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            output.discard()  # who reads it may have stopped, and the end would wait
        raise
    except KeyboardInterrupt:  # one more, while the command was ending
        interrupts.end_at_once()
        output.discard()
        sys.exit(INTERRUPTED)
    except OutputError as error:
        output.discard()
        if error.is_closed_pipe:
            sys.exit(CLOSED_PIPE)
        sys.stderr.write(f"partq: {error.message}\n")
        sys.exit(1)
    finally:
        interrupts.end_at_once()


def _run() -> None:
    try:
        # Only here: without the extra `cli` this must still be importable, to say so.
        from partq.cli.commands import cli

        try:
            cli(prog_name="partq")
        except SystemExit as end:
            if end.code != INTERRUPTED:
                sys.stdout.flush()
            raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            raise
        if extra in {"cli", "embedded"} and LABORATORY & set(sys.argv[1:2]):
            extra = "lab"
        sys.stderr.write(
            f"partq: this command needs the package {package!r}, which is not installed; "
            f"in a checkout of partq: pip install -e '.[{extra}]'\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
