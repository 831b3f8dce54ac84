"""``koala demo``: what Koala does, in half a minute: live on three sites of this machine, or simulated.

Both are drawn the same way; see ``live`` and ``simulated``.
"""

from __future__ import annotations

from pathlib import Path

import click

from koala.cli.errors import UserError


@click.command()
@click.option("--keep", is_flag=True, help="Leave the daemon running, with its dashboard.")
@click.option(
    "--end",
    "to_end",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="End a demo that was kept; --keep names the directory.",
)
@click.option("--still", is_flag=True, help="Show the end only, without the animation.")
@click.option("--simulated", is_flag=True, help="Run a simulation instead: nothing is started, three seconds.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The seed of the simulation, or of the input files' bytes."
)
@click.option("--json", "as_json", is_flag=True, help="Print what happened as JSON.")
def demo(keep: bool, to_end: Path | None, still: bool, simulated: bool, seed: int, as_json: bool) -> None:
    """Run four real jobs on three small sites of this machine and show it.

    An MPI job that no site is large enough for is split over two and waits for its input file; one of high priority
    preempts another; a component fails and its job is started again as a whole. The demo has a daemon of its own,
    which is gone at the end.
    """
    if to_end is not None:
        from koala.cli.demo.live import end_kept

        end_kept(to_end)
        return
    if not simulated:
        from koala.cli.demo.live import show_live

        show_live(seed=seed, still=still, keep=keep, as_json=as_json)
        return
    if keep or as_json:
        raise UserError("--keep and --json are about the live demo; leave out --simulated")
    from koala.cli.demo.simulated import show_simulated

    show_simulated(seed, still=still)
