"""The cluster from the command line: `python -m e2e.cluster COMMAND`. Needs no packages of Python.

up                              make it, or find it there
down                            remove it
run COMMAND...                  run a command where the cluster is reached, KUBECONFIG set
image project CONTEXT NAME      build the image of a checkout and load it; prints its name
image spark CONTEXT NAME        the same with its image for jobs of Spark
image redis NAME                have an image of Redis of that name
binaries [--only apiserver|helm]   have the binaries; prints their folder
"""

import argparse
import os
import sys
from pathlib import Path

from e2e.cluster import Cluster, ClusterError, binaries, choose


def main(argv: list[str]) -> int:
    """Run one command; return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "binaries":
            match arguments.only:
                case "apiserver":
                    folder = binaries.api_server()
                case "helm":
                    folder = binaries.helm().parent
                case _:
                    folder = binaries.ensure()
            sys.stdout.write(f"{folder}\n")
        else:
            _use(choose(), arguments)
    except ClusterError as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _use(cluster: Cluster, arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "up":
            cluster.up()
        case "down":
            cluster.down()
        case "run":
            command = cluster.command(*arguments.argv)
            os.execvpe(command[0], command, {**os.environ, **cluster.environment()})  # noqa: S606 - its arguments are ours
        case "image":
            match arguments.kind:
                case "project":
                    name = cluster.project_image(arguments.context, arguments.name)
                    sys.stdout.write(f"{name}\n")
                case "spark":
                    name = cluster.spark_image(arguments.context, arguments.name)
                    sys.stdout.write(f"{name}\n")
                case _:
                    cluster.redis_image(arguments.name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up")
    commands.add_parser("down")
    commands.add_parser("run").add_argument("argv", nargs=argparse.REMAINDER)
    kinds = commands.add_parser("image").add_subparsers(dest="kind", required=True)
    for kind in ("project", "spark"):
        project = kinds.add_parser(kind)
        project.add_argument("context", type=Path)
        project.add_argument("name")
    kinds.add_parser("redis").add_argument("name")
    commands.add_parser("binaries").add_argument("--only", choices=["apiserver", "helm"])
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
