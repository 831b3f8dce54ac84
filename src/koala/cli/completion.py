"""``koala completion``: the script that lets a shell complete Koala's verbs, options, jobs and sites."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KOALA_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash: koala completion bash > ~/.local/share/bash-completion/completions/koala
    zsh:  koala completion zsh > ~/.zfunc/_koala    (with ~/.zfunc in fpath)
    fish: koala completion fish > ~/.config/fish/completions/koala.fish
    """
    from click.shell_completion import get_completion_class

    from koala.cli import koala

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    script = kind(koala, {}, "koala", VARIABLE)
    # Not source(), which would start the shell to ask for its version.
    click.echo(script.source_template % script.source_vars())
