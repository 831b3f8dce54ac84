"""Queries: the questions that the store answers, each in its caller's transaction, which sees one moment.

Every frequent query finds its rows by an index; see ``schema``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
    type_coerce,
    union_all,
)

from koala.files import CatalogueEntry
from koala.model.messages import EndedJob, JobSubmitted
from koala.model.request import JOB_ID_MAX, JobId, Request
from koala.store import records
from koala.store import schema as tables
from koala.store.columns import PlainText, Whole, escaped
from koala.store.requests import decode_body, restored
from koala.store.rows import (
    ALL_JOBS,
    ChosenJobs,
    ComponentRow,
    JournalRow,
    LiveRecord,
    RecentlyEnded,
    Recovered,
    StateDirectory,
    StoredJob,
    StoryRows,
    TokenRow,
    TransferRow,
)
from koala.store.writes import BODY, SUBMISSION, file_head, file_key

# The largest number of an entry, and the largest offset in an output.
NUMBER_MAX = JOB_ID_MAX
# At most this many keys are in one query.
KEYS_AT_ONCE = 5_000
# The use of a site has at most this many steps, unless the caller sets another limit.
STEPS_MAX = 2_000
# At most this many ends of components are examined for the recently ended jobs.
ENDS_LOOKED_AT_MAX = 2_000
# At most this many entries of the journal are read for the story of a job.
STORY_ENTRIES_MAX = 10_000
# The range of code points that are no characters.
FIRST_SURROGATE, LAST_SURROGATE = 0xD800, 0xDFFF

R = TypeVar("R")


def _columns(table: Table, form: type[Any]) -> list[Any]:
    """Return the columns that are fields of a row."""
    return [table.c[field] for field in form.__struct_fields__]


_JOB = _columns(tables.jobs, StoredJob)
# Made once, because building a statement costs more than running it.
_BY_ID = select(*_JOB).where(tables.jobs.c.id == bindparam("number"))
_BY_CLIENT_TOKEN = select(*_JOB).where(
    and_(tables.jobs.c.owner == bindparam("owner"), tables.jobs.c.client_token == bindparam("client_token"))
)
_COMPONENT = _columns(tables.components, ComponentRow)
_TRANSFER = _columns(tables.transfers, TransferRow)
_TOKEN = _columns(tables.tokens, TokenRow)
_FILE = _columns(tables.files, CatalogueEntry)
_ENTRY = [*_columns(tables.journal, JournalRow), tables.journal.c.request_key]


def _rows(connection: Connection, statement: Select[Any], form: type[R]) -> list[R]:
    return [form(**row._mapping) for row in connection.execute(statement)]


def _row(connection: Connection, statement: Select[Any], form: type[R], **values: object) -> R | None:
    row = connection.execute(statement, values).first()
    return None if row is None else form(**row._mapping)


def _entries(connection: Connection, statement: Select[Any]) -> list[JournalRow]:
    rows = connection.execute(statement).all()
    asked = requests(connection, {row.request_key for row in rows if row.request_key is not None})
    return [_entry(row, asked) for row in rows]


def _entry(row: Row[Any], asked: dict[str, Request]) -> JournalRow:
    values = dict(row._mapping)
    key = values.pop("request_key")
    if key is None:
        values["body"] = BODY[values["kind"]].decode(values["body"])
    elif key not in asked:
        raise ValueError(f"the request {key} of job {row.job} is missing")
    else:
        fields = SUBMISSION.decode(values["body"])
        fields["ended"] = msgspec.convert(fields.get("ended", ()), tuple[EndedJob, ...])
        values["body"] = JobSubmitted(**fields, request=asked[key])
    return JournalRow(**values)


def _some(keys: Collection[R]) -> Iterator[Sequence[R]]:
    """Yield the keys, split into as many as one query may have."""
    ordered = list(keys)
    for start in range(0, len(ordered), KEYS_AT_ONCE):
        yield ordered[start : start + KEYS_AT_ONCE]


def clamped(number: int) -> int:
    """Return the nearest number that the databases can store; no row is beyond it."""
    return max(-NUMBER_MAX, min(number, NUMBER_MAX))


def is_whole(number: int) -> bool:
    """Return True if a row could have this number at all."""
    return clamped(number) == number


# ------------------------------------------------------------------------------------------------ restart


def recover(connection: Connection) -> Recovered:
    """Return the state that a restart begins with."""
    journal, outbox = tables.journal, tables.outbox
    to_perform = select(*_ENTRY).join(outbox, outbox.c.seq == journal.c.seq).order_by(journal.c.seq)
    newest = connection.execute(select(journal.c.seq, journal.c.at).order_by(journal.c.seq.desc()).limit(1)).first()
    return Recovered(
        records=tuple(records.read(connection)),
        outbox=tuple(_entries(connection, to_perform)),
        last_seq=0 if newest is None else newest.seq,
        last_job=connection.scalar(select(func.max(tables.jobs.c.id))) or 0,
        last_at=0.0 if newest is None else newest.at,
    )


def live_record(connection: Connection, states: Collection[str]) -> LiveRecord:
    """Return the jobs in these states, in order of their ids, with all their components and transfers."""
    jobs, components, shared = tables.jobs, tables.components, tables.transfer_jobs
    lives = jobs.c.state.in_(sorted(states))
    live_transfers = select(shared.c.transfer).join(jobs, jobs.c.id == shared.c.job).where(lives)
    order = (components.c.job, components.c.run, components.c.part, components.c.claimed_at, components.c.token)
    return LiveRecord(
        jobs=_rows(connection, select(*_JOB).where(lives).order_by(jobs.c.id), StoredJob),
        components=_rows(
            connection,
            select(*_COMPONENT).join(jobs, jobs.c.id == components.c.job).where(lives).order_by(*order),
            ComponentRow,
        ),
        transfers=_rows(
            connection,
            select(*_TRANSFER)
            .where(tables.transfers.c.id.in_(live_transfers))
            .order_by(tables.transfers.c.started_at, tables.transfers.c.id),
            TransferRow,
        ),
    )


def newest_seq(connection: Connection) -> int:
    """Return the highest sequence number in the journal, 0 if it is empty."""
    return connection.scalar(select(func.max(tables.journal.c.seq))) or 0


def newest_at(connection: Connection) -> float:
    """Return the time of the newest entry of the journal, 0 if it is empty."""
    journal = tables.journal
    return connection.scalar(select(journal.c.at).order_by(journal.c.seq.desc()).limit(1)) or 0.0


# --------------------------------------------------------------------------------------------------- jobs


def job(connection: Connection, number: int) -> StoredJob | None:
    """Return the job with this id."""
    return _row(connection, _BY_ID, StoredJob, number=number)


def requests(connection: Connection, keys: Collection[str]) -> dict[str, Request]:
    """Return the requests with these keys; each is made once, and long texts are shared."""
    rows = tables.requests
    found = {
        row.key: decode_body(row.body)
        for some in _some(keys)
        for row in connection.execute(select(rows.c.key, rows.c.body).where(rows.c.key.in_(some)))
    }
    named = {key for body in found.values() for key in body.texts}
    texts = {
        row.key: row.body
        for some in _some(named)
        for row in connection.execute(select(tables.texts).where(tables.texts.c.key.in_(some)))
    }
    return {key: restored(body, texts) for key, body in found.items()}


def requests_of(connection: Connection, numbers: Collection[int]) -> dict[JobId, Request]:
    """Return the requests of jobs, as far as they are on record."""
    columns = tables.jobs.c
    key_of: dict[JobId, str] = {}
    for some in _some(numbers):
        found = connection.execute(select(columns.id, columns.request_key).where(columns.id.in_(some)))
        key_of.update((row.id, row.request_key) for row in found if row.request_key is not None)
    asked = requests(connection, set(key_of.values()))
    return {number: asked[key] for number, key in key_of.items() if key in asked}


def jobs_of(connection: Connection, owner: str, numbers: Collection[int]) -> set[JobId]:
    """Return the jobs among these that belong to the owner."""
    columns = tables.jobs.c
    found: set[JobId] = set()
    for some in _some(numbers):
        found.update(connection.scalars(select(columns.id).where(columns.id.in_(some), columns.owner == owner)))
    return found


def jobs(
    connection: Connection,
    *,
    owner: str | None,
    states: Collection[str],
    before: int | None,
    limit: int,
    array: int | None = None,
    which: ChosenJobs = ALL_JOBS,
) -> list[StoredJob]:
    """Return the newest jobs: all but the elements of arrays, or the elements of one array. Each state is looked up
    separately, so that a rare state is found quickly among many jobs."""
    table = tables.jobs
    newest = select(table.c.id).order_by(table.c.id.desc()).limit(limit)
    newest = newest.where(table.c.array.is_(None) if array is None else table.c.array == clamped(array))
    if owner is not None:
        newest = newest.where(table.c.owner == owner)
    if before is not None:
        newest = newest.where(table.c.id < clamped(before))
    if which.name.endswith("*"):
        head = escaped(which.name[:-1])
        newest = newest.where(func.substr(type_coerce(table.c.name, PlainText), 1, len(head)) == head)
    elif which.name:
        newest = newest.where(table.c.name == which.name)
    if which.from_at is not None:
        newest = newest.where(table.c.submitted_at >= which.from_at)
    if which.to_at is not None:
        newest = newest.where(table.c.submitted_at < which.to_at)
    if states:
        each = [newest.where(table.c.state == state).subquery() for state in sorted(set(states))]
        newest = select(union_all(*(select(one.c.id) for one in each)).subquery().c.id)
    found = select(*_JOB).where(table.c.id.in_(newest)).order_by(table.c.id.desc()).limit(limit)
    return _rows(connection, found, StoredJob)


def job_by_client_token(connection: Connection, owner: str, client_token: str) -> StoredJob | None:
    """Return the job that the owner submitted with this token."""
    return _row(connection, _BY_CLIENT_TOKEN, StoredJob, owner=owner, client_token=client_token)


def counts(connection: Connection, owner: str | None) -> dict[str, int]:
    """Count the jobs, of one owner or of all, in each state that occurs; an array counts by its elements."""
    state = tables.jobs.c.state
    found = select(state, func.count()).where(tables.jobs.c.elements.is_(None)).group_by(state).order_by(state)
    if owner is not None:
        found = found.where(tables.jobs.c.owner == owner)
    return {row[0]: row[1] for row in connection.execute(found)}


# --------------------------------------------------------------------------------- components and transfers


def components(connection: Connection, number: int) -> list[ComponentRow]:
    """Return all starts of all components of a job: by run, then by component, the oldest first."""
    table = tables.components
    found = select(*_COMPONENT).where(table.c.job == number)
    return _rows(
        connection, found.order_by(table.c.run, table.c.part, table.c.claimed_at, table.c.token), ComponentRow
    )


def component(connection: Connection, token: str) -> ComponentRow | None:
    """Return the component with this token."""
    return _row(connection, select(*_COMPONENT).where(tables.components.c.token == token), ComponentRow)


def components_by_token(connection: Connection, tokens: Collection[str]) -> list[ComponentRow]:
    """Return the components with these tokens."""
    table = tables.components
    return [
        row
        for some in _some(tokens)
        for row in _rows(connection, select(*_COMPONENT).where(table.c.token.in_(some)), ComponentRow)
    ]


def ended_lately(
    connection: Connection, *, site: str | None, owner: str | None, from_at: float, ends_max: int
) -> list[RecentlyEnded]:
    """Return the ended jobs with a component that ended after a time, at one site or anywhere, the last first. Only
    the last ``ends_max`` such components are examined."""
    table, of = tables.components, tables.jobs
    last = select(table.c.job, table.c.ended_at).where(table.c.ended_at >= from_at)
    last = last.order_by(table.c.ended_at.desc()).limit(ends_max)
    if site is None:
        parts = [last.where(table.c.pruned == literal_column(each)).subquery() for each in ("false", "true")]
        ends = union_all(*(select(part.c.job, part.c.ended_at) for part in parts)).subquery()
    else:
        ends = last.where(table.c.site == site).subquery()
    found = select(of.c.id, of.c.array, of.c.ended_at).where(
        of.c.id.in_(select(ends.c.job)), of.c.ended_at.is_not(None)
    )
    if owner is not None:
        found = found.where(of.c.owner == owner)
    return [RecentlyEnded(*row) for row in connection.execute(found.order_by(of.c.ended_at.desc(), of.c.id.desc()))]


def held_processors(
    connection: Connection, site: str, from_at: float, to_at: float, steps_max: int
) -> list[tuple[float, int]]:
    """Return the changes in the number of held processors of a site, as (time, more or fewer), in order. What was
    held before counts at ``from_at``. With more than ``steps_max`` changes, each of the equal periods has one."""
    table = tables.components
    of_site = and_(table.c.site == site, table.c.claimed_at <= to_at)
    begins = case((table.c.claimed_at < from_at, from_at), else_=table.c.claimed_at)
    claims = select(begins.label("at"), table.c.processors.label("more")).where(
        of_site, or_(table.c.ended_at >= from_at, table.c.ended_at.is_(None))
    )
    ends = select(table.c.ended_at, -table.c.processors).where(of_site, table.c.ended_at.between(from_at, to_at))
    steps = union_all(claims, ends).subquery()
    exact = select(steps.c.at, func.sum(steps.c.more)).group_by(steps.c.at).order_by(steps.c.at)
    found = connection.execute(exact.limit(steps_max + 1)).all()
    if len(found) > steps_max:
        stretch = _stretch(steps.c.at, from_at, to_at, steps_max)
        merged = select(func.max(steps.c.at), func.sum(steps.c.more)).group_by(stretch).order_by(stretch)
        found = connection.execute(merged).all()
    return [(at, int(more)) for at, more in found]


def _stretch(at: Any, from_at: float, to_at: float, steps_max: int) -> Any:
    """Return the number of the period that contains a moment, among at most ``steps_max``; databases differ in
    rounding."""
    return cast((at - from_at) * ((steps_max - 1) / (to_at - from_at)), Whole)


def ended_components(
    connection: Connection, before: float, limit: int, now: float | None = None
) -> list[ComponentRow]:
    """Return components that ended before a time and are not marked as pruned, the first to end first. With ``now``,
    a component whose job sets its own time to keep it is returned when that time is over."""
    table = tables.components
    is_due = table.c.ended_at < before
    if now is not None:
        own = table.c.keep_for_s
        is_due = or_(and_(own.is_(None), is_due), and_(own.is_not(None), table.c.ended_at + own < now))
    found = select(*_COMPONENT).where(_is_kept(), is_due)
    return _rows(connection, found.order_by(table.c.ended_at, table.c.token).limit(limit), ComponentRow)


def ended_components_count(connection: Connection) -> int:
    """Count the components that have ended and are not marked as pruned."""
    found = select(func.count()).where(_is_kept(), tables.components.c.ended_at.is_not(None))
    return connection.scalar(found) or 0


def _is_kept() -> Any:
    return tables.components.c.pruned == literal_column("false")


def transfers(connection: Connection, number: int) -> list[TransferRow]:
    """Return every transfer that was ever recorded for a job, the oldest first."""
    table, shared = tables.transfers, tables.transfer_jobs
    found = select(*_TRANSFER).join(shared, shared.c.transfer == table.c.id).where(shared.c.job == number)
    return _rows(connection, found.order_by(table.c.started_at, table.c.id), TransferRow)


# -------------------------------------------------------------------------------------------------- files


def files(connection: Connection, *, after: str | None, prefix: str, limit: int | None) -> list[CatalogueEntry]:
    """Return files in the order of their stored names. The conditions on heads follow from those on names, and let
    the index be used."""
    table = tables.files
    found = select(*_FILE).order_by(table.c.head, table.c.name).limit(limit)
    if after is not None:
        found = found.where(table.c.head >= file_head(after), table.c.name > after)
    if prefix:
        found = found.where(table.c.head >= file_head(prefix), table.c.name >= prefix)
        beyond = _beyond(escaped(prefix))
        if beyond is not None:
            found = found.where(table.c.head < beyond, type_coerce(table.c.name, PlainText) < beyond)
    return _rows(connection, found, CatalogueEntry)


def _beyond(prefix: str) -> str | None:
    """Return the first text after all that begin with ``prefix``; None if there is none."""
    prefix = prefix.rstrip("\U0010ffff")
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(following if following != FIRST_SURROGATE else LAST_SURROGATE + 1)


def file(connection: Connection, name: str) -> CatalogueEntry | None:
    """Return the file with this name."""
    return _row(connection, select(*_FILE).where(tables.files.c.key == file_key(name)), CatalogueEntry)


def state_directory(connection: Connection) -> StateDirectory | None:
    """Return the state directory that the database belongs to."""
    return _row(connection, select(tables.state_directory), StateDirectory)


# ------------------------------------------------------------------------------------------------ journal


def journal(
    connection: Connection, *, after: int, limit: int, number: int | None, owner: str | None
) -> list[JournalRow]:
    """Return the entries after a sequence number, in order: of one job, or of one owner's jobs and of no job, or
    all."""
    table = tables.journal
    found = select(*_ENTRY).where(table.c.seq > clamped(after))
    if number is not None:
        found = found.where(table.c.job == number)
        if owner is not None:
            found = found.where(table.c.owner == owner)
    elif owner is not None:
        ways = (table.c.owner == owner, and_(table.c.owner.is_(None), table.c.job.is_(None)))
        first = select(table.c.seq).where(table.c.seq > clamped(after)).order_by(table.c.seq).limit(limit)
        each = [first.where(way).subquery() for way in ways]
        found = select(*_ENTRY).where(table.c.seq.in_(union_all(*(select(one.c.seq) for one in each))))
    return _entries(connection, found.order_by(table.c.seq).limit(limit))


def story(connection: Connection, number: int, kinds: Collection[str]) -> StoryRows:
    """Return the entries of these types about a job, in order; for a very long story the first and the last."""
    table = tables.journal
    of_job = and_(table.c.job == number, table.c.what.in_(sorted(kinds)))
    count = connection.scalar(select(func.count()).where(of_job)) or 0
    found = select(*_ENTRY).where(of_job)
    head = count if count <= STORY_ENTRIES_MAX else STORY_ENTRIES_MAX // 10
    first = _entries(connection, found.order_by(table.c.seq).limit(head))
    if count <= STORY_ENTRIES_MAX:
        return StoryRows(first)
    last = _entries(connection, found.order_by(table.c.seq.desc()).limit(STORY_ENTRIES_MAX - head))
    return StoryRows(first, count - STORY_ENTRIES_MAX, last[::-1])


def site_reports(connection: Connection, site: str, from_at: float, to_at: float, steps_max: int) -> list[JournalRow]:
    """Return the site's reports from ``from_at`` to ``to_at``, and the last one before, which was valid at the
    beginning. With more than ``steps_max`` reports, return the last of each of the equal periods."""
    table = tables.journal
    of_site = and_(table.c.site == site, tables.IS_SITE_REPORT)
    within = and_(of_site, table.c.at >= from_at, table.c.at <= to_at)
    before = select(*_ENTRY).where(of_site, table.c.at < from_at)
    last = before.order_by(table.c.at.desc(), table.c.seq.desc()).limit(1)
    wanted = within
    if (connection.scalar(select(func.count()).select_from(table).where(within)) or 0) > steps_max:
        stretch = _stretch(table.c.at, from_at, to_at, steps_max)
        wanted = table.c.seq.in_(select(func.max(table.c.seq)).where(within).group_by(stretch))
    entries = select(*_ENTRY).where(wanted).order_by(table.c.at, table.c.seq)
    return _entries(connection, last) + _entries(connection, entries)


# ------------------------------------------------------------------------------------------------- tokens


def tokens(connection: Connection, revoked_since: float | None) -> list[TokenRow]:
    """Return all tokens, or all but those that were revoked before a time; the oldest first."""
    table = tables.tokens
    found = select(*_TOKEN).order_by(table.c.created_at, table.c.id)
    if revoked_since is not None:
        found = found.where(or_(table.c.revoked_at.is_(None), table.c.revoked_at >= revoked_since))
    return _rows(connection, found, TokenRow)


def token_by_hash(connection: Connection, secret_hash: str) -> TokenRow | None:
    """Return the token whose secret has this hash, revoked or not."""
    return _row(connection, select(*_TOKEN).where(tables.tokens.c.secret_hash == secret_hash), TokenRow)
