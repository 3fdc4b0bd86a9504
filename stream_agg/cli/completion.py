"""`stream-agg completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

EXAMPLES = """
\b
Examples:
  stream-agg completion bash > ~/.local/share/bash-completion/completions/stream-agg
  stream-agg completion fish > ~/.config/fish/completions/stream-agg.fish
  eval "$(stream-agg completion zsh)"
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"this click knows no completion for {shell}")
    click.echo(made(ctx.find_root().command, {}, "stream-agg", "_STREAM_AGG_COMPLETE").source())
