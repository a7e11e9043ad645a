"""`partq crds`: the CustomResourceDefinitions as files."""

from pathlib import Path

import click

from partq.errors import PartqError, SettingsError
from partq.resources.crds import CRDS, render, without_new_rules


class OutdatedError(PartqError):
    """A file is not what the models say."""


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("crds"),
    show_default=True,
    help="Folder of the files.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option(
    "--old-servers",
    is_flag=True,
    help="Without the rules that Kubernetes before 1.30 refuses; the operator checks them too.",
)
def crds(directory: Path, *, check: bool, old_servers: bool) -> None:
    """Write partitionedqueue.yaml and consumergroup.yaml."""
    for name, make in CRDS.items():
        file = directory / name
        definition = without_new_rules(make()) if old_servers else make()
        text = render(definition)
        try:
            if check:
                if not file.is_file() or file.read_text(encoding="utf-8") != text:
                    raise OutdatedError(f"{file} is not what the models say; run `partq crds`")
            else:
                directory.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                click.echo(file)
        except OSError as error:
            raise SettingsError(f"{file}: {error.strerror}") from error
