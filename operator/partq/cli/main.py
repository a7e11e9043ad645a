"""The entry point `partq`: starts the commands, or says which extra to install for them."""

import sys

_EXTRAS = {
    "click": "cli",
    "pydantic": "cli",
    "rich": "cli",
    "yaml": "cli",
    "hiredis": "embedded",
    "prometheus_client": "embedded",
    "psutil": "embedded",
    "redis": "embedded",
    "lupa": "simulate",
    "numpy": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "kopf": "operator",
    "kubernetes": "operator",
}
"""Which extra brings a package that a command imports."""


def main() -> None:
    """Run `partq` with the arguments of the process."""
    try:
        # Only here: without the extra `cli` this must still be importable, to say so.
        from partq.cli.commands import cli

        cli(prog_name="partq")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            raise
        sys.stderr.write(
            f"partq: this command needs the package {package!r}, which is not installed; "
            f"in a checkout of partq: pip install '.[{extra}]'\n"
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
