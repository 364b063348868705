"""`koord completion`: what a shell sources to complete koord's commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes koord in a shell.

    \b
    bash: source <(koord completion bash)
    zsh:  source <(koord completion zsh)
    fish: koord completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "koord", "_KOORD_COMPLETE").source())
