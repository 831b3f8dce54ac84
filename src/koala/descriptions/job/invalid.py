"""Corrections for a request that the model refuses, field by field.

The model finds contradictions without regard to the format; the readers add the words of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from koala.model.checkpoint import CHECKPOINT_EVERY_S_MAX, CHECKPOINT_GRACE_S_MAX
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    COMPONENTS_MAX,
    CUBE_DIMENSIONS_MAX,
    EXIT_CODE_MAX,
    INPUT_FILES_MAX,
    JOB_EDGES_MAX,
    JOB_TASKS_MAX,
    LICENSE_COUNT_MAX,
    LICENSES_MAX,
    PROCESSORS_MAX,
    SPLITS_MAX,
    InvalidRequestError,
)
from koala.model.request_size import RequestSizeError

_ADVICE = {
    "application": "keep one of the two, and remove the other",
    "arguments": "remove the arguments, or write them in the script",
    "environment": "keep one of the two",
    "processors": f"write 1 to {PROCESSORS_MAX}",
    "after": "name each job once, by its number, with what has to become of it: after: {done: [17]}",
    "processors_per_task": "write a divisor of the processors",
    "task": "leave task out, or let the job not be one of tasks",
    "size": "write how many processors it has, or a task with a count",
    "count": "keep one of the two, or let them agree",
    "memory": "write a size such as 16G",
    "gpus": "write a number of GPUs, or leave it out",
    "gpu": "write gpus: 1 or more beside the kind, or leave the kind out",
    "constraint": "write features as a, a&b or a|b",
    "input_files": f"name each file once, and at most {INPUT_FILES_MAX} of them",
    "outputs": "name files or directories below the workspace, each once",
    "keep_for": "write a shorter time, or leave it out",
    "keep_outputs_for": "write a shorter time, or leave it out",
    "components": f"write 1 to {COMPONENTS_MAX} components",
    "flexible": "leave one component, whose processors are the total, or let the job not be flexible",
    "site": "remove the site, or let the job not be flexible",
    "component_min": "write a smaller number, or ask for more processors",
    "components_max": f"write 1 to {COMPONENTS_MAX}, or leave it out",
    "splits": f"write at most {SPLITS_MAX} splits, each of whole numbers whose sum is the job's processors",
    "walltime_s": "write more than 0",
    "checkpoint_directory": "write the name of a directory below the workspace, such as ckpt",
    "checkpoint_every": f"write 1 to {CHECKPOINT_EVERY_S_MAX:.0f} seconds, such as 10m",
    "checkpoint_grace": f"write 0 to {CHECKPOINT_GRACE_S_MAX:.0f} seconds, such as 60s, and less than the walltime",
    "placement_tries_max": "write 1 or more, or leave it out",
    "claiming_tries_max": "write 1 or more, or leave it out",
    "restarts_max": "write 0 or more, or leave it out",
    "retry_on": f"write exit codes from 1 to {EXIT_CODE_MAX}, each once",
    "never_on": f"write exit codes from 1 to {EXIT_CODE_MAX}, each once and in one of the two lists",
    "bisection_mbit_s": f"write the bandwidth over the middle of the job, 0 to {BANDWIDTH_MBIT_S_MAX}, or that of "
    "each processor",
    "per_processor_mbit_s": f"write one of the two, 0 to {BANDWIDTH_MBIT_S_MAX}",
    "share": "write 0 to 1",
    "tasks": f"write at most {JOB_TASKS_MAX} tasks, with short names, and no components, flexible or processors",
    "edges": f"write at most {JOB_EDGES_MAX} edges",
    "clusters": "put every task into one cluster, or leave clusters out to have them found",
    "licenses": f"write at most {LICENSES_MAX} names, each once, and 1 to {LICENSE_COUNT_MAX} of each",
    "dimensions": f"write 1 to {CUBE_DIMENSIONS_MAX}",
}
# Messages of the model that are only advice.
_MESSAGES = {
    "components_max": "this is not a number of components",
    "restarts_max": "this is not a number of restarts",
}


def told(error: InvalidRequestError, words: Mapping[str, str]) -> tuple[str, str]:
    """Return what is wrong, and what to write, in the words of a format if it has its own for the field."""
    if isinstance(error, RequestSizeError):
        return error.message, error.advice
    message = _MESSAGES.get(error.field, error.message)
    advice = words.get(error.field) or _ADVICE[error.field]
    # The model's message after its semicolon is advice too, unless it explains why the value is wrong.
    repeated = error.field in {
        "processors",
        "processors_per_task",
        "count",
        "size",
        "memory",
        "gpus",
        "gpu",
        "constraint",
        "environment",
        "input_files",
        "outputs",
        "placement_tries_max",
        "claiming_tries_max",
        "bisection_mbit_s",
        "per_processor_mbit_s",
        "share",
        "dimensions",
        "licenses",
        "retry_on",
        "never_on",
        "checkpoint_directory",
        "checkpoint_every",
        "checkpoint_grace",
    }
    return message.partition("; ")[0] if repeated else message, advice
