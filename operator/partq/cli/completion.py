"""`partq completion`: what makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

_HELP = """Print what makes a shell complete commands and options of partq.

\b
  eval "$(partq completion bash)"          in ~/.bashrc
  eval "$(partq completion zsh)"           in ~/.zshrc
  partq completion fish | source           in ~/.config/fish/config.fish
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script of one shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click has all three
    click.echo(kind(ctx.find_root().command, {}, "partq", "_PARTQ_COMPLETE").source())
