"""A job for people: its components with bars of their time, and the explanation of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koala.cli.terminal.output import console, counted
from koala.cli.terminal.refusals import print_refusal
from koala.cli.terminal.words import (
    BARRIER,
    IDLE,
    OURS,
    STATE_STYLES,
    ago,
    clean,
    clock,
    clock_at,
    first_element,
    job_note,
    places_words,
    progress_bar,
    share_bar,
    shown_state,
    size,
    span,
    state_text,
)
from koala.model.nodes import gpu_time_text
from koala.words.expectations import planned, start_sentences, with_its_time

if TYPE_CHECKING:
    from rich.text import Text

    from koala.model.api import CheckpointInfo, ComponentRun, Explanation, JobDetail

BAR_WIDTH_MAX = 30
BAR_WIDTH_MIN = 10
# The width beside the bar in a row of the table of components.
BESIDE_BAR = 52
# At most this many starts of components are shown; those of the last run come last.
STARTS_SHOWN_MAX = 40
# At most this many travelling files are shown, and this much of a checksum.
FILES_SHOWN_MAX = 20
# At most this many components are shown with their usage, and their workspace.
WORKSPACES_SHOWN_MAX = 10
CHECKSUM_SHOWN = 16
# At most this many components are shown with their checkpoints.
CHECKPOINTS_SHOWN_MAX = 4


def print_job(job: JobDetail, now: float, verdict: str = "") -> None:
    """Print everything about a job but its story; ``verdict`` says that waiting will not help it."""
    from rich.text import Text

    out = console()
    title = Text(f"job {job.id}  {clean(job.name)}  ", style="bold")
    title.append_text(state_text(shown_state(job)))
    out.print(title)
    kind = f"{job.kind}, {job.job_type}, policy {job.policy}, {job.priority} priority, owner {clean(job.owner)}"
    rows = [
        ("asked for", f"{job.asked or counted(job.processors, 'processor')}: {kind}"),
        ("walltime", "" if job.walltime_s is None else span(job.walltime_s)),
        ("submitted", f"{clock(job.submitted_at, now)}, {ago(job.submitted_at, now)}"),
        ("times", _times(job, now)),
        ("places", _places(job)),
        ("tries", _tries(job)),
        ("claiming", claiming_words(job)),
        ("checkpoint", "" if job.checkpoint is None else checkpoint_words(job.checkpoint, now)),
        ("used", "; ".join(used_words(job))),
        ("note", job_note(job, verdict)),
    ]
    for name, words in rows:
        if words:
            out.print(Text(f"{name:<11}", style="dim").append(words, style="default"))
    if job.traffic is not None:
        out.print(Text(clean(job.traffic.in_words)))
    if job.components:
        out.print()
        _print_components(job, now)
    _print_used(job)
    _print_workspaces(job)
    if job.transfers:
        out.print()
        _print_transfers(job)
    if job.outputs:
        out.print()
        _print_outputs(job)
    if job.files:
        out.print()
        _print_files(job)


def used_words(job: JobDetail) -> list[str]:
    """Return the usage of a job: processor time and memory once a component has ended, and GPU time."""
    words = [] if job.usage is None else [job.usage.in_words]
    return [*words, gpu_time_text(job.gpu_s)] if job.gpu_s else words


def claiming_words(job: JobDetail) -> str:
    """Describe the processor time that claiming gained and wasted; empty below a second."""
    if max(job.gained_processor_s, job.wasted_processor_s) < 1.0:
        return ""
    return (
        f"{job.gained_processor_s:,.0f} processor s gained by claiming late, {job.wasted_processor_s:,.0f} wasted "
        "until the start"
    )


def checkpoint_words(found: CheckpointInfo, now: float) -> str:
    """Describe what its components continued from, and what the job would lose if it were ended now."""
    parts = []
    for each in found.saved[:CHECKPOINTS_SHOWN_MAX]:
        when = "" if each.saved_at is None else f", {ago(each.saved_at, now)}"
        parts.append(
            f"component {each.component} continued from {size(each.size_bytes)} that run {each.run} saved on "
            f"{clean(each.site)}{when}"
        )
    more = len(found.saved) - len(parts)
    parts += [f"and {more} more"] if more else []
    parts = parts or ["no run has continued from one yet"]
    if found.work_lost_s is not None:
        lost = f"{span(found.work_lost_s)} of work" if found.work_lost_s >= 1.0 else "no work"
        parts.append(f"{lost} would be lost if it ended now")
    return "; ".join(parts)


def _places(job: JobDetail) -> str:
    if job.elements is not None:
        return f"each element has its own: koala jobs --array {job.id}, koala job show {first_element(job)}"
    return places_words(job.places) or "none yet"


def _tries(job: JobDetail) -> str:
    if job.elements is not None:
        return ""
    return f"{job.placement_tries} to place, {job.claiming_tries} to claim; {counted(job.runs, 'run')}"


def _times(job: JobDetail, now: float) -> str:
    if job.elements is not None:
        if job.ended_at is not None:
            return f"ended after {span(job.ended_at - job.submitted_at)}, {ago(job.ended_at, now)}"
        return f"{shown_state(job)}; submitted {ago(job.submitted_at, now)}"
    if job.started_at is None:
        if job.ended_at is not None:
            return f"never started, ended after {span(job.ended_at - job.submitted_at)}"
        return f"not started; {job.state} for {span(now - job.since)}"
    begun = f"started after {span(job.started_at - job.submitted_at)}"
    if job.ended_at is not None:
        return f"{begun}, ran {span(job.ended_at - job.started_at)}, ended {ago(job.ended_at, now)}"
    return f"{begun}, {job.state} for {span(now - job.since)}"


def _print_components(job: JobDetail, now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    width = max(BAR_WIDTH_MIN, min(BAR_WIDTH_MAX, out.width - BESIDE_BAR))
    table = Table(box=None, pad_edge=False)
    table.add_column("part", justify="right")
    table.add_column("site", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("procs", justify="right")
    table.add_column(Text(f"{BARRIER} barrier {OURS} application"), no_wrap=True, min_width=width)
    for column in ("waited", "ran"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("end", overflow="fold")
    shown = job.components[-STARTS_SHOWN_MAX:]
    for each in shown:
        cells = (str(each.part), clean(each.site), str(each.processors))
        ran = "-" if each.released_at is None else span((each.ended_at or now) - each.released_at)
        waited = span((each.released_at or each.ended_at or now) - each.claimed_at)
        table.add_row(*map(Text, cells), _bar(job, each, now, width), waited, ran, Text(_end(each)))
    out.print(table)
    if len(job.components) > len(shown):
        out.print(f"and {len(job.components) - len(shown)} starts before; --json has all", style="dim")


def _print_used(job: JobDetail) -> None:
    """Print the usage of each of several components in the last run that has ended."""
    from rich.text import Text

    ended = [each for each in job.components if each.used_in_words]
    last = max((each.run for each in ended), default=0)
    found = [each for each in ended if each.run == last]
    if len(found) < 2:
        return  # the total is printed
    console().print()
    for each in found[:WORKSPACES_SHOWN_MAX]:
        words = f"{each.part} on {clean(each.site)}  {each.used_in_words}; memory {each.memory_in_words}"
        console().print(Text(f"{'used':<11}", style="dim").append(words, style="default"))
    if len(found) > WORKSPACES_SHOWN_MAX:
        console().print(f"and {len(found) - WORKSPACES_SHOWN_MAX} more; --json has all", style="dim")


def _print_workspaces(job: JobDetail) -> None:
    """Print where each component of the last run started, for users with an account there."""
    from rich.text import Text

    last = max((each.run for each in job.components), default=0)
    found = {each.part: each for each in job.components if each.run == last and each.released_at is not None}
    shown = [each for each in found.values() if each.workspace][:WORKSPACES_SHOWN_MAX]
    if shown:
        console().print()
    for each in shown:
        words = f"{each.part} on {clean(each.site)}  {clean(each.workspace)}"
        console().print(Text(f"{'workspace':<11}", style="dim").append(words, style="default"), soft_wrap=True)
    if len(found) > len(shown) > 0:
        console().print(f"and {len(found) - len(shown)} more; --json has all", style="dim")


def _print_outputs(job: JobDetail) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("made", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("at", overflow="fold")
    for each in job.outputs[:FILES_SHOWN_MAX]:
        sites = ", ".join(clean(replica.site) for replica in each.replicas)
        table.add_row(Text(clean(each.name)), size(each.size_bytes), Text(sites))
    console().print(table)
    more = len(job.outputs) - FILES_SHOWN_MAX
    hint = f"and {more} more; " if more > 0 else ""
    until = job.outputs[0].kept_until
    kept = "" if until is None else f", until {clock(until)}"
    console().print(f"{hint}koala job fetch {job.id} brings them here{kept}", style="dim")


def _bar(job: JobDetail, each: ComponentRun, now: float, width: int) -> Text:
    """Draw the component's time between the submission of the job and its end, or now."""
    to_at = now if job.ended_at is None else job.ended_at
    ended = min(to_at, each.ended_at or to_at)
    released = min(ended, each.released_at or ended)
    # A component that has not reported is still in the queue of its site.
    ready = released if each.ready_at is None and each.released_at is None else each.ready_at or each.claimed_at
    ready = min(released, max(job.submitted_at, ready))
    colour = STATE_STYLES["running"] if each.outcome in (None, "done") else STATE_STYLES["failed"]
    pieces = [
        (ready - job.submitted_at, IDLE, "dim"),
        (released - ready, BARRIER, "cyan"),
        (ended - released, OURS, colour),
        (to_at - ended, IDLE, "dim"),
    ]
    return share_bar(pieces, width)


def _end(each: ComponentRun) -> str:
    if each.outcome is None:
        if each.released_at is not None:
            return "runs"
        return "at the barrier" if each.ready_at is not None else "in its queue"
    words = each.outcome.replace("_", " ")
    if each.exit_code not in (None, 0):
        words += f" {each.exit_code}"
    if each.reason not in ("", f"exit code {each.exit_code}") and each.outcome not in ("done", "aborted"):
        words += f": {clean(each.reason)}"
    if each.stderr_line:
        words += f"; stderr: {clean(each.stderr_line)}"
    return words


def _print_transfers(job: JobDetail) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("file", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("from")
    table.add_column("to")
    table.add_column("brought", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for each in job.transfers:
        brought: Text = progress_bar(each.brought_bytes, max(1, each.size_bytes), BAR_WIDTH_MIN)
        if each.ok is not None:
            brought = Text("arrived") if each.ok else Text(f"broke: {clean(each.reason)}", style="red")
        table.add_row(
            *(Text(clean(cell)) for cell in (each.file, each.source, each.target)), brought, size(each.size_bytes)
        )
    console().print(table)


def _print_files(job: JobDetail) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("travels", overflow="fold")
    table.add_column("mode", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("SHA-256", no_wrap=True)
    for each in job.files[:FILES_SHOWN_MAX]:
        shown = {"directory": f"{each.path}/", "link": f"{each.path} -> {each.link}"}.get(each.kind, each.path)
        measured = (size(each.size_bytes), each.checksum[:CHECKSUM_SHOWN]) if each.kind == "file" else ("", "")
        mode = "" if each.kind == "link" else each.mode
        table.add_row(*(Text(clean(cell)) for cell in (shown, mode, *measured)))
    out = console()
    out.print(table)
    if len(job.files) > FILES_SHOWN_MAX:
        out.print(f"and {len(job.files) - FILES_SHOWN_MAX} more; --json has all", style="dim")


def print_explanation(found: Explanation, now: float) -> None:
    """Print where a job stands, what each site lacked for it and what would cure that, and its story."""
    from rich.text import Text

    out = console()
    title = Text(f"job {found.job}  ", style="bold")
    title.append_text(state_text("array" if found.state == "unfolding" else found.state))
    title.append(f"  since {clock(found.since, now)}, {ago(found.since, now)}", style="dim")
    out.print(title)
    local = clock_at(now)
    meaning = with_its_time(found.meaning, found.begins_at if found.state == "held" else None, local)
    out.print(Text(clean(meaning[:1].upper() + meaning[1:] + ".")))
    if found.next_element is not None:
        out.print(Text(f"Its next element is job {found.next_element}:"))
    if found.place_in_line is not None:
        of = "" if found.queue_length is None else f" of {found.queue_length}"
        since = "" if found.waiting_since is None else f", waiting for {span(now - found.waiting_since)}"
        tries = "1 try" if found.placement_tries == 1 else f"{found.placement_tries:,} tries"
        order = f" ({clean(found.order)})" if found.order else ""
        out.print(Text(f"Number {found.place_in_line}{of} in its queue{order}{since}; {tries} to place it."))
        if found.order_problem:
            out.print(Text(f"{clean(found.order_problem)}. Until then jobs are served in order of arrival."))
        if found.elements_before:
            come = "comes" if found.elements_before == 1 else "come"
            elements = counted(found.elements_before, "element")
            too = ", too" if found.place_in_line > 1 else ""
            out.print(Text(f"{elements} of arrays {come} before it{too}, one after the other."))
    for sentence in start_sentences(found, now, local, found.elements_before):
        out.print(Text(clean(sentence)))
    for each in found.planned_before:
        plan = clean(planned(each.expected_at, each.expected_sites, now, local))
        whose = "A job of another user" if each.job is None else f"Job {each.job}"
        out.print(Text(f"{whose}, which comes before it, has its places planned for {plan}."))
    if found.refusal is not None:
        out.print()
        print_refusal(found.refusal)
    elif found.places:
        out.print(Text(f"Places: {places_words(found.places)}."))
    if found.traffic is not None:
        out.print(Text(clean(found.traffic.in_words)))
    if found.story:
        out.print()
        _print_story(found, now)


def _print_story(found: Explanation, now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, style="dim", justify="right")
    table.add_column(overflow="fold")
    first = found.story[0].at
    for line in found.story:
        table.add_row(clock(line.at, now), f"+{span(line.at - first)}", Text(clean(line.text)))
    console().print(table)
