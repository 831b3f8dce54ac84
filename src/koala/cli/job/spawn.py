"""``koala job spawn``: adds tasks to a running job of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from koala.cli.connection import JOB_ID, complete_job, with_client
from koala.cli.errors import UserError, say
from koala.cli.job.sending import text_to_send
from koala.cli.job.text_problems import shown_at_place, source_to_send
from koala.cli.terminal.output import counted, print_json
from koala.cli.terminal.words import clean
from koala.words.phrases import listed

if TYPE_CHECKING:
    from koala.client import Client


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID, shell_complete=complete_job)
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def spawn(client: Client, /, job_id: int, file: str, as_json: bool) -> None:
    """Add tasks to a running job of tasks, near those that they exchange with.

    The file has the new tasks, each with its rcr, and edges that join them with each other and with tasks of the job:

    \b
    tasks: {encode-2: 2.0}
    edges: [[encode-2, mix, 5.0]]

    Running tasks stay where they are. The new tasks get places at once, in components of their own, or are refused.
    They run the job's application, get their names as all tasks do (KOALA_TASKS), and belong to the job from then on.
    """
    from koala.client import InvalidError

    found = text_to_send(file, "a file of tasks", "that of koala job spawn --help")
    if found is None:
        raise UserError(f"{clean(file)}: there is no such file; write the new tasks into it")
    text, source = found
    try:
        spawned = client.spawn(job_id, text, source=source_to_send(source))
    except InvalidError as error:
        raise UserError(shown_at_place(error, text, source)) from None
    if as_json:
        print_json(spawned)
        return
    tasks = sum(len(each.tasks) for each in spawned.components)
    began = "it begins" if tasks == 1 else "they begin"
    say(f"Job {job_id} has {counted(tasks, 'task')} more; koala job explain {job_id} shows when {began}.")
    for each in spawned.components:
        say(f"  component {each.part} on {clean(each.site)}: {clean(listed(each.tasks))}")
