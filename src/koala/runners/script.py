"""The POSIX sh script that every component runs, on any kind of site.

A head of quoted assignments says what this component is; the body in ``koala.runners.script_body`` is the same for
all. Whatever comes from a user is quoted once, here, and is never pasted into a command.
"""

from __future__ import annotations

import math
import shlex

from koala.model.launch import STDERR, STDOUT, WORK, Launch
from koala.model.request import Application
from koala.runners.script_body import BODY


def component_script(launch: Launch) -> str:
    """The script of one component. It is run by ``sh`` in the component's own directory and works only there."""
    application = launch.application
    barrier_tenths = math.ceil(launch.barrier_timeout_s * 10)
    head = [
        "#!/bin/sh",
        f"# Component {launch.part} of {launch.parts} of job {launch.job}.",
        f"koala_job_type={launch.job_type.value}",
        f"koala_part={launch.part}",
        f"koala_processors={launch.processors}",
        f"koala_barrier_tenths={barrier_tenths}",
    ]
    if launch.search_path:
        head.append(f"PATH={shlex.quote(':'.join(launch.search_path))}:$PATH")
        head.append("export PATH")
    return "\n".join([*head, *_places(application), *_program(application), BODY])


def _places(application: Application) -> list[str]:
    """Functions that go to the application's directory and open its streams there."""
    if application.directory is None:
        enter = f'cd "$koala_home/{WORK}"'
    elif application.directory.startswith("/"):
        enter = f"cd {shlex.quote(application.directory)}"
    else:
        # A directory of the user's choice below our own; "./" keeps a name like "-" from being taken for an option.
        inside = shlex.quote(f"./{application.directory}")
        enter = f'cd "$koala_home/{WORK}" && mkdir -p {inside} && cd {inside}'
    stdin = "/dev/null" if application.stdin is None else shlex.quote(application.stdin)
    stdout = f'"$koala_home/{STDOUT}"' if application.stdout is None else shlex.quote(application.stdout)
    stderr = f'"$koala_home/{STDERR}"' if application.stderr is None else shlex.quote(application.stderr)
    # Two openings of one file would write over each other.
    shared = application.stderr is not None and application.stderr == application.stdout
    return [
        f"koala_enter() {{ {enter} || return; }}",
        "koala_open_streams() {",
        f"    exec 2>{stderr}" if not shared else f"    exec 2>{stdout}",
        f"    exec <{stdin}",
        f"    exec >{stdout}" if not shared else "    exec >&2",
        "}",
    ]


def _program(application: Application) -> list[str]:
    """A function that becomes the application, with the user's variables and then those that it is given.

    A task with several processors runs as many threads, unless the user says otherwise.
    ``env`` sets them because a shell refuses to set some names; the inner ``sh`` keeps a program whose name holds a
    '=' from being taken for a variable.
    """
    variables = "".join(f" {shlex.quote(f'{name}={value}')}" for name, value in application.environment)
    if application.processors_per_task > 1:
        variables = f" OMP_NUM_THREADS={application.processors_per_task}{variables}"
    become = """/bin/sh -c 'exec "$@"' sh"""
    if application.script is None:
        assert application.executable is not None, "a launch has something to run"
        words = " ".join(map(shlex.quote, (application.executable, *application.arguments)))
        text = "koala_text() { :; }"
    else:
        interpreter = "" if application.script.startswith("#!") else "/bin/sh "
        words = f'{interpreter}"$koala_home/job-script"'
        text = f"koala_text() {{ printf '%s' {shlex.quote(application.script)}; }}"
    return [text, "koala_program() {", f'    exec env{variables} "$@" {become} {words}', "}"]
