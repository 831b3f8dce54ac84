"""Every call of the API as a value: its request, its answer, and whether it may be repeated.

One function for each endpoint; nothing here sends anything. ``Client`` and ``AsyncClient`` have a method for each,
with its arguments and its docstring. Annotations are evaluated here, so that the methods show them too.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
from pydantic import ValidationError

from koala.client.errors import InvalidError, TooLargeError
from koala.model.api import (
    DESCRIPTION_BYTES_MAX,
    DOWNLOAD_BYTES_MAX,
    PAGE_ITEMS_DEFAULT,
    WAIT_S_MAX,
    ContentState,
    DryRun,
    DryRunGraph,
    Explanation,
    FileInfo,
    Forgotten,
    Health,
    JobDetail,
    JobSummary,
    JournalEntry,
    LinkHistory,
    Login,
    MissingContents,
    NetworkInfo,
    NewToken,
    Output,
    OutputInfo,
    Overview,
    Page,
    ReadFile,
    Scope,
    SiteHistory,
    SiteInfo,
    Spawned,
    Submitted,
    SubmittedGraph,
    TokenInfo,
    Whoami,
)
from koala.model.api.questions import (
    ContentQuestion,
    Forgetting,
    JobChange,
    Question,
    Reading,
    Registration,
    Replication,
    SpawnWish,
    Submission,
    TokenWish,
)
from koala.model.request import Priority

# The time for a call that the daemon can answer at once.
ANSWER_TIMEOUT_S = 30.0
# Processes of the daemon read a large description and cluster its tasks. On a busy machine it gives up each of the
# two after 240 s (WORK_WAIT_S_MAX), and the client waits for that error.
DESCRIPTION_TIMEOUT_S = 2 * 240.0 + ANSWER_TIMEOUT_S
# One call may remove hundreds of files from several sites.
FORGET_TIMEOUT_S = 120.0
# The measurement of a link may take longer.
PROBE_TIMEOUT_S = 90.0
OUTPUT_BYTES_DEFAULT = 65_536

P = ParamSpec("P")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Value]):
    """One call. A ``repeatable`` call may be sent again after a lost connection, because a second one changes
    nothing. ``timeout_s`` is the time for the answer, None where that depends on the size of a file."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    read: Callable[[bytes], Value]
    parameters: tuple[tuple[str, str], ...] = ()
    body: Question | None = None
    content: bytes | None = None
    repeatable: bool = True
    timeout_s: float | None = ANSWER_TIMEOUT_S


def _parameters(**given: Any) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a query: None is left out, and a list gives one parameter for each value."""
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        several = value if isinstance(value, list) else [] if value is None else [value]
        pairs += [(name, str(each)) for each in several]
    for _, text in pairs:
        text.encode()  # raises for text that UTF-8 cannot represent
    return tuple(pairs)


def _path_of(name: str) -> str:
    """Return a name with slashes as a path of a URL; a step of dots, which would name a directory, is escaped."""
    steps = (quote(step, safe="") for step in name.split("/"))
    return "/".join(step.replace(".", "%2E") if step in (".", "..") else step for step in steps)


def _nothing(_: bytes) -> None:
    return None


def _reader(kind: type[Value]) -> Callable[[bytes], Value]:
    """Return a reader of this kind of answer, which ignores unknown fields."""
    return msgspec.json.Decoder(kind).decode


# ------------------------------------------------------------------------------------------------ jobs


def _described(path: str, wish: Submission | SpawnWish, read: Callable[[bytes], Value]) -> Call[Value]:
    """Make a call with a description, which takes the daemon time to read."""
    return Call(method="POST", path=path, body=wish, read=read, timeout_s=DESCRIPTION_TIMEOUT_S)


def submit(
    description: str, *, source: str = "job", client_token: str | None = None, manifest: str | None = None
) -> Call[Submitted]:
    """Submit a job; it is durable when this returns. ``source`` is a file name, whose ending selects the format.

    A client token makes the call safe to repeat: the same token gives the same job. Without one the client makes a
    token, so that a lost connection never makes two jobs. ``manifest`` lists files that were sent before.
    """
    token = uuid.uuid4().hex if client_token is None else client_token
    wish = Submission(description=description, source=source, client_token=token, files=manifest)
    return _described("/v1/jobs", wish, _reader(Submitted))


def dry_run(description: str, *, source: str = "job", manifest: str | None = None) -> Call[DryRun]:
    """Return where the job would go now, or why it cannot; nothing is submitted."""
    wish = Submission(description=description, source=source, files=manifest)
    return _described("/v1/dry-runs", wish, _reader(DryRun))


def submit_graph(
    description: str, *, source: str = "graph.yaml", client_token: str | None = None, manifest: str | None = None
) -> Call[SubmittedGraph]:
    """Submit several jobs that wait for each other, all or none; otherwise like ``submit``."""
    token = uuid.uuid4().hex if client_token is None else client_token
    wish = Submission(description=description, source=source, client_token=token, files=manifest)
    return _described("/v1/graphs", wish, _reader(SubmittedGraph))


def dry_run_graph(description: str, *, source: str = "graph.yaml", manifest: str | None = None) -> Call[DryRunGraph]:
    """Return where the jobs of a graph would go now; nothing is submitted."""
    wish = Submission(description=description, source=source, files=manifest)
    return _described("/v1/graph-dry-runs", wish, _reader(DryRunGraph))


def missing_contents(manifest: str) -> Call[MissingContents]:
    """Return the contents of a list of files that are still to be sent, and how much of each has arrived."""
    question = ContentQuestion(files=manifest)
    return Call(method="POST", path="/v1/missing-contents", body=question, read=_reader(MissingContents))


def send_content(checksum: str, size_bytes: int, offset: int, data: bytes) -> Call[ContentState]:
    """Send one piece of a content; the last piece is answered after the whole content was verified."""
    return Call(
        method="PUT",
        path=f"/v1/contents/{quote(checksum, safe='')}",
        parameters=_parameters(size_bytes=size_bytes, offset=offset),
        content=data,
        read=_reader(ContentState),
        timeout_s=None,
    )


def jobs(
    *,
    states: Iterable[str] = (),
    owner: str | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    array: int | None = None,
    name: str | None = None,
    from_at: float | None = None,
    to_at: float | None = None,
) -> Call[Page[JobSummary]]:
    """Return one page of jobs, the newest first, ended ones included, an array as one job; with ``array`` its
    elements instead. ``name`` selects jobs of this name, or with this prefix if it ends with ``*``; ``from_at`` and
    ``to_at`` limit the time of submission. ``each_job`` asks for page after page."""
    asked = _parameters(
        state=sorted(states),
        owner=owner,
        limit=limit,
        cursor=cursor,
        array=array,
        name=name,
        from_at=from_at,
        to_at=to_at,
    )
    return Call(method="GET", path="/v1/jobs", parameters=asked, read=_reader(Page[JobSummary]))


def job(job: int) -> Call[JobDetail]:
    """Return everything about one job but its story."""
    return Call(method="GET", path=f"/v1/jobs/{job}", read=_reader(JobDetail))


def explain(job: int) -> Call[Explanation]:
    """Return where the job stands and why, with its story."""
    return Call(method="GET", path=f"/v1/jobs/{job}/explanation", read=_reader(Explanation))


def wait(job: int, *, timeout_s: float = WAIT_S_MAX) -> Call[JobSummary]:
    """Return the job when it has ended, or after the timeout (at most WAIT_S_MAX); see ``wait_ended``."""
    return Call(
        method="GET",
        path=f"/v1/jobs/{job}/wait",
        parameters=_parameters(timeout_s=timeout_s),
        read=_reader(JobSummary),
        timeout_s=timeout_s + ANSWER_TIMEOUT_S,
    )


def cancel(job: int, *, reason: str = "") -> Call[JobSummary]:
    """Ask for the job's end; the wish is durable when this returns. An ended job stays as it is. As in every change,
    ``reason`` is for the record and for the job's owner."""
    return _changed(job, "cancel", reason)


def requeue(job: int, *, hold: bool = False, reason: str = "") -> Call[JobSummary]:
    """Put a job that has places, runs or is in quarantine back into its placement queue, and ``hold`` it there; the
    wish is durable when this returns."""
    return _changed(job, "requeue", reason, hold="true" if hold else None)


def hold(job: int, *, reason: str = "") -> Call[JobSummary]:
    """Keep a job that has not started from being tried; the wish is durable when this returns."""
    return _changed(job, "hold", reason)


def release(job: int, *, reason: str = "") -> Call[JobSummary]:
    """End the hold of a job; the wish is durable when this returns."""
    return _changed(job, "release", reason)


def change(
    job: int, *, walltime_s: float | None = None, priority: str | None = None, reason: str = ""
) -> Call[JobSummary]:
    """Change the walltime or priority of a job that waits for a place; the change is durable when this returns."""
    wish = JobChange(walltime_s=walltime_s, priority=None if priority is None else Priority(priority))
    return _changed(job, "change", reason, wish)


def _changed(job: int, verb: str, reason: str, body: JobChange | None = None, **more: Any) -> Call[JobSummary]:
    return Call(
        method="POST",
        path=f"/v1/jobs/{job}/{verb}",
        parameters=_parameters(reason=reason or None, **more),
        body=body,
        read=_reader(JobSummary),
    )


def spawn(job: int, description: str, *, source: str = "spawn") -> Call[Spawned]:
    """Add tasks to a running job of tasks, given as a text with ``tasks`` and ``edges``. When this returns they have
    places, near the tasks that they exchange data with. A repeated call with the same tasks changes nothing."""
    wish = SpawnWish(description=description, source=source)
    return _described(f"/v1/jobs/{job}/spawn", wish, _reader(Spawned))


def output(
    job: int,
    *,
    part: int = 0,
    run: int | None = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    offset: int = 0,
    limit: int = OUTPUT_BYTES_DEFAULT,
) -> Call[Output]:
    """Return the output of a component from a byte on: of the job's last run, or of run 1, 2, ..."""
    asked = _parameters(part=part, run=run, stream=stream, offset=offset, limit=limit)
    return Call(method="GET", path=f"/v1/jobs/{job}/output", parameters=asked, read=_reader(Output))


# -------------------------------------------------------------------------------------------- the grid


def overview() -> Call[Overview]:
    """Return the whole grid as it is now."""
    return Call(method="GET", path="/v1/grid", read=_reader(Overview))


def network() -> Call[NetworkInfo]:
    """Return what Koala knows of the links between sites."""
    return Call(method="GET", path="/v1/network", read=_reader(NetworkInfo))


def link(source: str, target: str) -> Call[LinkHistory]:
    """Return the measurements of the link from one site to another."""
    path = f"/v1/network/{quote(source, safe='')}/{quote(target, safe='')}"
    return Call(method="GET", path=path, read=_reader(LinkHistory))


def probe_link(source: str, target: str) -> Call[LinkHistory]:
    """Measure the link from one site to another now."""
    path = f"/v1/network/{quote(source, safe='')}/{quote(target, safe='')}/probe"
    return Call(method="POST", path=path, read=_reader(LinkHistory), timeout_s=PROBE_TIMEOUT_S)


def sites() -> Call[list[SiteInfo]]:
    """Return all sites."""
    return Call(method="GET", path="/v1/sites", read=_reader(list[SiteInfo]))


def site(name: str) -> Call[SiteInfo]:
    """Return one site."""
    return Call(method="GET", path=f"/v1/sites/{quote(name, safe='')}", read=_reader(SiteInfo))


def history(site: str, *, from_at: float, to_at: float) -> Call[SiteHistory]:
    """Return the use of the site's processors over a period."""
    return Call(
        method="GET",
        path=f"/v1/sites/{quote(site, safe='')}/history",
        parameters=_parameters(from_at=from_at, to_at=to_at),
        read=_reader(SiteHistory),
    )


def drain(site: str, *, reason: str = "") -> Call[SiteInfo]:
    """Send nothing new to the site; its running components continue."""
    return _told(site, "drain", reason=reason or None)


def resume(site: str, *, reason: str = "") -> Call[SiteInfo]:
    """Use the site again and forget its errors."""
    return _told(site, "resume", reason=reason or None)


def declare_lost(site: str, *, force: bool = False, reason: str = "") -> Call[SiteInfo]:
    """Stop waiting for the site: its jobs start again elsewhere. A site that answers requires ``force``."""
    return _told(site, "lost", force="true" if force else None, reason=reason or None)


def probe(site: str) -> Call[SiteInfo]:
    """Ask the site for its state now."""
    return _told(site, "probe")


def _told(site: str, verb: str, **parameters: str | None) -> Call[SiteInfo]:
    return Call(
        method="POST",
        path=f"/v1/sites/{quote(site, safe='')}/{verb}",
        parameters=_parameters(**parameters),
        read=_reader(SiteInfo),
    )


# ----------------------------------------------------------------------------------------------- files


def files(*, prefix: str = "", limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None) -> Call[Page[FileInfo]]:
    """Return one page of the replica catalogue, by name; ``each_file`` asks for page after page."""
    asked = _parameters(prefix=prefix or None, limit=limit, cursor=cursor)
    return Call(method="GET", path="/v1/files", parameters=asked, read=_reader(Page[FileInfo]))


def file(name: str) -> Call[FileInfo]:
    """Return one file and the sites of its replicas."""
    return Call(method="GET", path=f"/v1/files/{_path_of(name)}", read=_reader(FileInfo))


def outputs(job: int, *, after: int = 0) -> Call[list[OutputInfo]]:
    """Return the outputs of a job, with the names that ``read_file`` takes. For an array, return the outputs of its
    first elements after the job ``after``; ``each_output`` asks until the last one."""
    asked = _parameters(after=after or None)
    return Call(method="GET", path=f"/v1/jobs/{job}/outputs", parameters=asked, read=_reader(list[OutputInfo]))


def read_file(name: str, *, offset: int = 0, limit: int = DOWNLOAD_BYTES_MAX) -> Call[bytes]:
    """Return a piece of a file of the catalogue; ``fetch_file`` copies a whole file to this machine."""
    return Call(
        method="GET",
        path=f"/v1/file-contents/{_path_of(name)}",
        parameters=_parameters(offset=offset, limit=limit),
        read=bytes,
        timeout_s=None,
    )


def read_files(names: Sequence[str]) -> Call[list[tuple[ReadFile, bytes]]]:
    """Return several small files, each in whole, or with the problem that keeps it from being read. Files at the end
    that do not fit into the answer must be requested again. ``fetch_files`` copies any number of files to this
    machine."""
    wish = Reading(names=list(names))
    return Call(method="POST", path="/v1/file-contents", body=wish, read=_files_read, timeout_s=None)


def _files_read(answer: bytes) -> list[tuple[ReadFile, bytes]]:
    head, _, _ = answer.partition(b"\n")
    offset, found = len(head) + 1, []
    for each in _reader(list[ReadFile])(head):
        found.append((each, answer[offset : offset + each.size_bytes]))
        offset += each.size_bytes
    return found


def register(name: str, site: str, *, path: str | None = None, url: str | None = None) -> Call[FileInfo]:
    """Register a new file with its first replica, or another replica of a known file: copied from a path of the
    daemon's machine, or left at a URL."""
    wish = Registration(name=name, site=site, path=path, url=url)
    return Call(
        method="POST",
        path="/v1/files",
        body=wish,
        read=_reader(FileInfo),
        repeatable=False,
        timeout_s=None,
    )


def replicate(name: str, site: str) -> Call[FileInfo]:
    """Copy a replica to one more site; return when it is there."""
    wish = Replication(name=name, site=site)
    return Call(
        method="POST",
        path="/v1/replications",
        body=wish,
        read=_reader(FileInfo),
        repeatable=False,
        timeout_s=None,
    )


def forget(
    name: str | None = None,
    *,
    pattern: str | None = None,
    job: int | None = None,
    site: str | None = None,
    force: bool = False,
    preview: bool = False,
) -> Call[Forgotten]:
    """Forget one replica, or without a site all replicas and the file: of one file, of those that match a pattern, or
    of the outputs of a job. A large number is forgotten in several calls: repeat the call while there are ``more``.
    Raises ``ConflictError`` with the numbers of the jobs that wait for one of the files, unless ``force`` is set;
    with ``preview`` it only returns what would be forgotten."""
    wish = Forgetting(name=name, pattern=pattern, job=job, site=site, force=force, preview=preview)
    return Call(
        method="POST",
        path="/v1/forgettings",
        body=wish,
        read=_reader(Forgotten),
        repeatable=preview,
        timeout_s=FORGET_TIMEOUT_S,
    )


# --------------------------------------------------------------------------------------------- journal


def journal(*, after: int = 0, limit: int = PAGE_ITEMS_DEFAULT, job: int | None = None) -> Call[list[JournalEntry]]:
    """Return the journal, oldest first, from the entry after ``after`` on; ``each_entry`` asks for page after
    page."""
    asked = _parameters(after=after, limit=limit, job=job)
    return Call(method="GET", path="/v1/events", parameters=asked, read=_reader(list[JournalEntry]))


# ----------------------------------------------------------------------------------- tokens and service


def create_token(user: str, scopes: Iterable[Scope], *, note: str = "") -> Call[NewToken]:
    """Create a token for a user; its secret is returned only here. Only the daemon's own user may do this."""
    wish = TokenWish(user=user, scopes=list(scopes), note=note)
    return Call(method="POST", path="/v1/tokens", body=wish, read=_reader(NewToken), repeatable=False)


def tokens() -> Call[list[TokenInfo]]:
    """Return the valid tokens and the recently revoked ones, without secrets. Only the daemon's own user may do
    this."""
    return Call(method="GET", path="/v1/tokens", read=_reader(list[TokenInfo]))


def revoke_token(token: str) -> Call[None]:
    """Revoke a token at once, by its id. Only the daemon's own user may do this."""
    return Call(method="DELETE", path=f"/v1/tokens/{quote(token, safe='')}", read=_nothing)


def login() -> Call[Login]:
    """Return a link that opens the dashboard once. Only the daemon's own user may do this."""
    return Call(method="POST", path="/v1/logins", read=_reader(Login), repeatable=False)


def whoami() -> Call[Whoami]:
    """Return the caller as the daemon has identified it."""
    return Call(method="GET", path="/v1/whoami", read=_reader(Whoami))


def ready() -> Call[Health]:
    """Return the daemon's health. Raises ``UnavailableError`` with the reason if the daemon cannot work."""
    return Call(method="GET", path="/readyz", read=_reader(Health), repeatable=False)


def metrics() -> Call[str]:
    """Return the daemon's metrics in the OpenMetrics format."""
    return Call(method="GET", path="/metrics", read=bytes.decode)


# ---------------------------------------------------------------------------------------- wrong arguments


_NOT_UTF8 = "it contains bytes that are not UTF-8; rename it, or write it in UTF-8"
_WHAT = {
    "user": "write 1 to 64 letters, digits, '.', '_', '@' and '-', beginning with a letter or a digit",
    "scopes": "give at least one of read, submit and operate",
    "description": "write a job into it, in YAML, RSL or as a batch script",
}


def checked(describe: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
    """Return the call that a function describes. Raises ``InvalidError`` or ``TooLargeError`` with the argument that
    the API's schema refuses and what to write instead."""
    try:
        return describe(*args, **kwargs)
    except ValidationError as error:
        raise _in_words(error.errors()[0]) from None
    except UnicodeEncodeError as error:
        shown = error.object.encode("utf-8", errors="replace").decode("utf-8")
        raise InvalidError(f"{shown!r}: {_NOT_UTF8}") from None


def _in_words(problem: Any) -> InvalidError | TooLargeError:
    name = ".".join(map(str, problem["loc"]))
    kind, context = problem["type"], problem.get("ctx", {})
    cure = _WHAT.get(name, "write at least one character")
    if kind == "string_too_long" and name == "description":
        return TooLargeError(
            f"the description has more than {DESCRIPTION_BYTES_MAX} characters (DESCRIPTION_BYTES_MAX); put a large "
            "script into a file of its own that the job runs, and data into input files"
        )
    if kind == "string_too_short":
        return InvalidError(f"{name} is empty; {cure}")
    if kind == "too_short":
        return InvalidError(f"{name}: nothing is named; {cure}")
    if kind == "string_too_long":
        most = context["max_length"]
        return InvalidError(f"{name} has more than {most} characters; write at most {most}")
    if kind == "string_pattern_mismatch":
        return InvalidError(f"{name}: {problem['input']!r} cannot be used; {cure}")
    if kind == "string_unicode":
        return InvalidError(f"{name}: {_NOT_UTF8}")
    return InvalidError(f"{name}: {problem['msg']}")
