"""The check that the nodes of sites reach each other, as the launchers of co-allocated jobs need it: each site
resolves the names of the other sites' nodes and reaches a port behind each name.

One tiny job runs at each site, all at the same time. Each job listens and tries the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import re
import shlex
from collections.abc import AsyncIterator, Sequence

import msgspec

from koala.model.request import SiteName
from koala.sites.batch.check.jobs import CHECK_SCRIPT, POLL_EVERY_S, check_directory, tiny_job
from koala.sites.batch.check.steps import (
    CheckContext,
    Finding,
    StepResult,
    UnansweredError,
    passed,
    skipped,
    warned,
)
from koala.sites.batch.parse import reached_at, shares_of
from koala.sites.batch.system import BatchOutputError
from koala.sites.shell_script import assign, shell_file

# How long the jobs may take to try the others, in addition to their wait for each other.
TRY_S = 60.0
_NO_PYTHON = "none"
_NO_WORLD = "jobs whose components talk to each other (mpi, torchrun) do not start over both"


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The result for the way from a node of one site to a node of another."""

    source: SiteName
    target: SiteName
    finding: Finding


class _Listener(msgspec.Struct, frozen=True, kw_only=True):
    """The node of a site's job, the name by which other sites reach it, and the port at which it listens."""

    context: CheckContext
    node: str
    name: str
    port: int


async def check_between(contexts: Sequence[CheckContext]) -> AsyncIterator[Reach]:
    """Yield the result for each pair of these sites, whose work directories are known."""
    async with contextlib.AsyncExitStack() as stack:
        begun = await asyncio.gather(*(_begun(context, stack) for context in contexts))
        there = {each.context.site.name: each for each in begun if isinstance(each, _Listener)}
        why = {
            context.site.name: each
            for context, each in zip(contexts, begun, strict=True)
            if isinstance(each, StepResult)
        }
        tries = [_tried(each, [other for other in there.values() if other is not each]) for each in there.values()]
        tried = dict(zip(there, await asyncio.gather(*tries), strict=True))
        for source in contexts:
            for target in contexts:
                if source is not target:
                    names = source.site.name, target.site.name
                    result = why.get(names[0]) or why.get(names[1]) or tried[names[0]][names[1]]
                    yield Reach(source=names[0], target=names[1], finding=_finding(*names, result))


def _finding(source: SiteName, target: SiteName, result: StepResult) -> Finding:
    return Finding(step=f"{source} to {target}", sign=result.sign, words=result.words, advice=result.advice)


async def _begun(context: CheckContext, stack: contextlib.AsyncExitStack) -> _Listener | StepResult:
    """Return the job of a site once it listens, or why it does not. The stack removes everything it leaves behind."""
    try:
        await stack.enter_async_context(_prepared(context))
        reply = await context.ask(context.batch.submit(tiny_job(context)))
        if reply.code != 0:
            return skipped(f"not tried: {context.site.name} refuses the job: {reply.reason}")
        context.batch.parse_submitted(reply.printed)
        return await _listening(context)
    except (UnansweredError, BatchOutputError) as error:
        return skipped(f"not tried: {context.site.name}: {error}")


@contextlib.asynccontextmanager
async def _prepared(context: CheckContext) -> AsyncIterator[None]:
    functions = context.batch.on_node()
    values = assign(koala_check_home=context.home, koala_patience_s=f"{context.patience_s + TRY_S:.0f}")
    program = importlib.resources.files(__package__).joinpath("reach_program.py").read_text(encoding="utf-8")
    script = f"#!/bin/sh\n{functions}{values}{shell_file(__package__, 'between.sh')}"
    async with check_directory(context, {CHECK_SCRIPT: script, "program": program}):
        try:
            yield
        finally:
            with contextlib.suppress(UnansweredError):
                await context.ask(f": >{shlex.quote(f'{context.home}/end')}\n")
                await context.ask(context.batch.cancel(context.token, ()))


async def _read_when_there(context: CheckContext, name: str, more: str = "") -> str | None:
    """Return a file of the check's directory once it exists, and more files after it; None if it does not arrive in
    time."""
    until = context.clock() + (TRY_S if name == "reached" else context.patience_s)
    home = shlex.quote(context.home)
    while True:
        reply = await context.ask(f"cd {home} && if [ -e {name} ]; then cat {name} {more}; fi\n")
        if reply.printed:
            return reply.printed
        if context.clock() > until:
            return None
        await context.sleep(POLL_EVERY_S)


async def _listening(context: CheckContext) -> _Listener | StepResult:
    printed = await _read_when_there(context, "port", "addresses nodes")
    if printed is None:
        return skipped(
            f"not tried: the job at {context.site.name} did not start within {context.patience_s:.0f} s; "
            "give it longer with --patience"
        )
    port, addresses, nodes = (*printed.split("\n", 2), "", "")[:3]
    if port == _NO_PYTHON or not port.isdigit():
        return skipped(f"not tried: the nodes of {context.site.name} have no python3")
    shares = shares_of(nodes)
    node = shares[0].name if shares else "localhost"
    name = reached_at(context.site.name, context.settings, node, addresses.split())
    return _Listener(context=context, node=node, name=name, port=int(port))


async def _tried(source: _Listener, others: Sequence[_Listener]) -> dict[SiteName, StepResult]:
    """Return what the node of one site finds about each other site."""
    context = source.context
    targets = "".join(f"{other.name} {other.port}\n" for other in others)
    home = shlex.quote(context.home)
    try:
        await context.ask(f"cd {home} && printf %s {shlex.quote(targets)} >targets.part && mv targets.part targets\n")
        printed = await _read_when_there(context, "reached") if others else ""
    except UnansweredError as error:
        return {other.context.site.name: skipped(f"not tried: {context.site.name}: {error}") for other in others}
    lines = (printed or "").splitlines()
    lines += [""] * (len(others) - len(lines))
    return {other.context.site.name: _judged(source, other, line) for other, line in zip(others, lines, strict=False)}


def _judged(source: _Listener, target: _Listener, line: str) -> StepResult:
    word, _, why = line.partition(" ")
    why = re.sub(r"^\[Errno -?\d+\] ", "", why)
    here, there = source.context.site.name, target.context.site.name
    if word == "reached":
        return passed(f"the node {source.node} of {here} reaches {target.name} at port {target.port}")
    if word == "unresolved":
        return warned(
            f"the node {source.node} of {here} does not know the name {target.name} of a node of {there}: {why}; "
            f"{_NO_WORLD}",
            f"write 'host: ADDRESS' for {there} in the grid file where its nodes share one, or 'network: "
            "ADDRESS/BITS' where each has an address in it, as others reach them",
        )
    if word == "unreached":
        return warned(
            f"the node {source.node} of {here} cannot reach {target.name} at port {target.port}, a node of {there}: "
            f"{why}; {_NO_WORLD}",
            f"let the operators open TCP between the nodes of both, or write the 'host' or 'network' of {there} by "
            "which others reach its nodes",
        )
    return skipped(f"not tried: the node {source.node} of {here} gave no answer")
