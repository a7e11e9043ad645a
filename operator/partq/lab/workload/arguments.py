"""The arguments of the processes of a workload: which queue, and their names."""

import argparse


def parser_of(about: str | None, *named: str) -> argparse.ArgumentParser:
    """Return a parser that wants a URL, a queue and these texts."""
    parser = argparse.ArgumentParser(description=about)
    for name in ("url", "queue", *named):
        parser.add_argument(f"--{name}", required=True)
    return parser
