"""Tables and lists that are read from the code: verbs, attributes, options, messages, states, limits, the API.

Where the code has no words for a thing, such as the meaning of an option, they stand here; a thing without
words, or words without a thing, is an error, so that neither is forgotten.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import click
import msgspec
from reference_words import LIMITS, RSL_MEANING, SBATCH_MEANING

from koala.cli import ELSEWHERE, VERBS, koala
from koala.core.life.states import ENDED, TRANSITIONS
from koala.descriptions.rsl import reader as rsl
from koala.descriptions.sbatch import options as sbatch_options
from koala.model.facts import AnyFact
from koala.model.messages import AnyCommand, AnyEvent, JobOutcome, Outcome
from koala.policies import Catalogue
from koala.policies.catalogue import PARAMETERS
from koala.words.standing import MEANING

HELP_WIDTH = 80


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    names = list(head)
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _worded(names: Iterable[str], words: Mapping[str, str]) -> list[tuple[str, str]]:
    listed = list(names)
    if set(listed) != set(words):
        raise ValueError(f"docs/reference_words.py and the code differ: {sorted(set(listed) ^ set(words))}")
    return [(name, words[name]) for name in listed]


# ------------------------------------------------------------------------------------------------- verbs


def verbs() -> str:
    """The help of every verb, as the terminal shows it."""
    parts = []
    for verb in sorted([*VERBS, *ELSEWHERE]):
        command = koala.get_command(click.Context(koala), verb)
        assert command is not None
        parts.append(f"## koala {verb}")
        if verb in ELSEWHERE:
            parts.append(f"Comes with the distribution `{ELSEWHERE[verb][0]}`.")
        parts.append(_help(command, f"koala {verb}"))
        if isinstance(command, click.Group):
            for name, below in sorted(command.commands.items()):
                parts.append(f"### koala {verb} {name}\n\n{_help(below, f'koala {verb} {name}')}")
    return "\n\n".join(parts)


def _help(command: click.Command, path: str) -> str:
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
    context = click.Context(
        command, info_name=path, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH, **settings
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


# ------------------------------------------------------------------------------------------ descriptions


def _attributes(names: tuple[str, ...]) -> str:
    words = dict(_worded((*rsl.COMPONENT_ATTRIBUTES, *rsl.JOB_ATTRIBUTES), RSL_MEANING))
    return table(("attribute", "meaning"), ((f"`{name}`", words[name]) for name in names))


def rsl_component() -> str:
    """What a subrequest says of its own component."""
    return _attributes(rsl.COMPONENT_ATTRIBUTES)


def rsl_job() -> str:
    """What a subrequest says of the whole job."""
    return _attributes(rsl.JOB_ATTRIBUTES)


def rsl_refused() -> str:
    """Attributes that are refused, with the advice that the error gives."""
    rows = ((f"`{name}`", advice) for name, advice in sorted(rsl.UNSUPPORTED_ATTRIBUTES.items()))
    return table(("refused attribute", "what to do"), rows)


def _options(options: Mapping[str, str | None]) -> str:
    words = dict(_worded((*sbatch_options.SBATCH_OPTIONS, *sbatch_options.KOALA_OPTIONS), SBATCH_MEANING))
    rows = ((f"`--{name}`" + (f", `-{letter}`" if letter else ""), words[name]) for name, letter in options.items())
    return table(("option", "meaning"), rows)


def sbatch() -> str:
    """Options of Slurm that Koala reads."""
    return _options(sbatch_options.SBATCH_OPTIONS)


def sbatch_koala() -> str:
    """Options of Koala's own."""
    return _options(sbatch_options.KOALA_OPTIONS)


def sbatch_refused() -> str:
    """Options of Slurm that are refused, with the advice that the error gives."""
    rows = (
        (f"`--{name}`" + (f", `-{letter}`" if letter else ""), advice)
        for name, (letter, advice) in sbatch_options.UNSUPPORTED_OPTIONS.items()
    )
    return table(("refused option", "what to do"), rows)


def sbatch_noted() -> str:
    """Options of Slurm that are taken and have no effect, with why."""
    rows = (
        (f"`--{name}`" + (f", `-{letter}`" if letter else ""), why)
        for name, (letter, why) in sbatch_options.NOTED_OPTIONS.items()
    )
    return table(("noted option", "why it has no effect"), rows)


def policies() -> str:
    """The policies that ship, and what each form is called with."""
    rows = (
        (f"`{each.name}`", each.form, each.summary, f"`({', '.join(PARAMETERS[each.form])})`")
        for each in Catalogue.builtin()
    )
    return table(("policy", "form", "what it does", "called with"), rows)


# ---------------------------------------------------------------------------------------------- messages


def events() -> str:
    """Everything that can happen."""
    return _messages(get_args(AnyEvent))


def commands() -> str:
    """Everything that a driver can be told to do."""
    return _messages(get_args(AnyCommand))


def facts() -> str:
    """Everything that the core can put on record."""
    return _messages(get_args(AnyFact))


def _messages(kinds: tuple[type[msgspec.Struct], ...]) -> str:
    return "\n\n".join(f"### {kind.__name__}\n\n{_prose(kind)}\n\n{_fields(kind)}" for kind in kinds)


def _prose(kind: type) -> str:
    text = " ".join(line.strip() for line in (kind.__doc__ or "").strip().splitlines())
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _fields(kind: type[msgspec.Struct]) -> str:
    annotations: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        annotations |= getattr(parent, "__annotations__", {})
    rows = [
        (f"`{field.name}`", f"`{annotations[field.name].replace(' | ', ' or ')}`")
        for field in msgspec.structs.fields(kind)
    ]
    return table(("field", "type"), rows)


def outcomes() -> str:
    """How components and jobs end, as the log writes it."""
    ways = ", ".join(f"`{each}`" for each in Outcome)
    return (
        f"A component's outcome is one of {ways}. A job's is one of {', '.join(f'`{each}`' for each in JobOutcome)}."
    )


# ------------------------------------------------------------------------------------------------ states


def states() -> str:
    """Where a job can be."""
    return table(("state", "meaning"), ((f"`{state}`", meaning) for state, meaning in MEANING.items()))


def transitions() -> str:
    """Every way from one state to the next, numbered as in the picture."""
    rows: list[tuple[str, ...]] = []
    for state, ways in TRANSITIONS.items():
        for target, cause in ways.items():
            rows.append((str(len(rows) + 1), f"`{state}`", f"`{target}`", cause))
    ended = ", ".join(f"`{state}`" for state in TRANSITIONS if state in ENDED)
    return table(("no.", "from", "to", "what brings the job there"), rows) + f"\n\nNothing leads out of {ended}."


# ------------------------------------------------------------------------------------------------ limits


def limits() -> str:
    """Every named limit with its value in the code."""
    rows = []
    for module, name, meaning in LIMITS:
        value = getattr(importlib.import_module(module), name)
        rows.append((f"`{name}`", f"{int(value):,}", meaning, f"`{module}`"))
    return table(("limit", "value", "of what", "defined in"), rows)


# --------------------------------------------------------------------------------------------------- API


def api() -> str:
    """Every route of the API by group, from the very document that the daemon serves."""
    from fastapi import FastAPI

    from koala.daemon.api import access, app, files, health, jobs, journal, sites

    collected = FastAPI(openapi_tags=app.TAGS)
    for part in (jobs, sites, files, journal, access, health):
        collected.include_router(part.router)
    document = collected.openapi()
    parts = []
    for tag in document["tags"]:
        rows = [
            (f"`{method.upper()} {path}`", operation["summary"])
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation.get("tags", ())
        ]
        parts.append(
            f"## {tag['name'].capitalize()}\n\n{tag['description']}\n\n{table(('call', 'what it does'), rows)}"
        )
    return "\n\n".join(parts)
