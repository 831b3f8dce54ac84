"""``koala schema``: the JSON schema of a file that Koala reads, for editors and other programs."""

from __future__ import annotations

import click

from koala.cli.terminal.output import print_json


@click.command()
@click.argument("kind", type=click.Choice(["job", "grid", "workload", "study", "graph", "dendrogram"]))
def schema(kind: str) -> None:
    """Print the JSON schema of a job, grid, workload or study file, or of the files that `koala map` takes: a task
    graph and a dendrogram, which has machines in LANs, MANs and WANs.

    An editor that knows YAML can check the file against it while you write:

    \b
      koala schema job > job.schema.json
    """
    # Each kind of file imports what it needs; a schema of one need not wait for the others.
    if kind == "job":
        from koala.descriptions import job_schema

        print_json(job_schema())
    elif kind == "grid":
        from koala.descriptions import grid_schema

        print_json(grid_schema())
    elif kind == "workload":
        from koala.descriptions.workload.form import workload_schema

        print_json(workload_schema())
    elif kind == "study":
        from koala.descriptions.study.form import study_schema

        print_json(study_schema())
    elif kind == "graph":
        from koala.descriptions.mapping.application import graph_schema

        print_json(graph_schema())
    else:
        from koala.descriptions.mapping.grid import dendrogram_schema

        print_json(dendrogram_schema())
