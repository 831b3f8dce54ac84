"""Files of the catalogue on their way to callers: lists of jobs' outputs, and the bytes of any file, piece by piece.

A job's outputs belong to its owner: for others they do not exist. Nothing is kept between two pieces, so a caller
continues wherever it stopped, and verifies the whole by the checksum in the catalogue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import in_own_thread, query
from koala.daemon.service.job_records import JobRecords
from koala.daemon.service.principal import Principal
from koala.files import CatalogueEntry, FileArea, FilesError, MissingReplicaError, Replica
from koala.files.area.layout import replica_path
from koala.files.sources import WRITABLE_SCHEMES, UrlSource, is_writable
from koala.model.api import DOWNLOAD_BYTES_MAX, OutputInfo, ReadFile, ReplicaInfo
from koala.model.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from koala.model.outputs import ARCHIVE_ENDING, COLLECTED_BYTES_MAX, OUTPUT_PREFIX, job_of_output
from koala.model.request import FileName, Request, SiteName

# At most this many pieces are read at a time, for one user and for all together; others wait.
USER_DOWNLOADS_MAX = 2
DOWNLOADS_MAX = 8
# At most this many outputs of one job are listed; a list of an array's outputs ends once it has this many.
OUTPUTS_LISTED_MAX = 10_000
OUTPUTS_ENOUGH = 1_000
# One page of files reads the catalogue at most this often; then it is shorter, and the next one continues.
LISTING_LOOKS_MAX = 20
# One piece may take this long to come from its site.
DOWNLOAD_S = 60.0


class DownloadService:
    """Lists and reads files for callers, and decides who may see which."""

    def __init__(
        self, engine: Engine, records: JobRecords, *, user_max: int = USER_DOWNLOADS_MAX, all_max: int = DOWNLOADS_MAX
    ) -> None:
        self._engine = engine
        self._records = records
        self._user_max = user_max
        self._all = asyncio.Semaphore(all_max)
        self._of_users: dict[str, tuple[asyncio.Semaphore, int]] = {}

    async def outputs(self, who: Principal, job: int, *, after: int = 0) -> list[OutputInfo]:
        """Return the job's outputs, by component and path; for an array those of its elements after the job
        ``after``, as many as fit into one answer: an empty answer is the end."""
        row = await self._records.row(who, job)
        request = await self._records.request_of(job)
        first, last = (job, job) if row.elements is None else (job + 1, job + row.elements.size)
        return await query(self._outputs_of, max(first, after + 1), last, request) if request.has_outputs else []

    def _outputs_of(self, first: int, last: int, request: Request) -> list[OutputInfo]:
        """Return the outputs of these jobs, which share a request, until there are enough for one answer."""
        outputs = list[OutputInfo]()
        for job, made in groupby(self._made(first, last), key=lambda entry: job_of_output(entry.name)):
            assert job is not None, "jobs made them"
            some = (_told(job, entry, request) for entry in islice(made, OUTPUTS_LISTED_MAX))
            outputs += sorted(some, key=lambda each: (each.part, each.path))
            if len(outputs) >= OUTPUTS_ENOUGH:
                break
        return outputs

    def _made(self, first: int, last: int) -> Iterator[CatalogueEntry]:
        """Yield the outputs of these jobs, in the order of the catalogue, where jobs with equally many digits are in
        order, and a job comes before those whose numbers begin with its own."""
        limit = min(OUTPUTS_ENOUGH, 20 + 2 * (last - first))
        after: str | None = None
        while first <= last:
            found = self._engine.store.files(
                after=after or f"{OUTPUT_PREFIX}{first}-", prefix=OUTPUT_PREFIX, limit=limit
            )
            digits, after = len(str(first)), found[-1].name if len(found) == limit else None
            for entry in found:
                maker = job_of_output(entry.name)
                if maker is None:
                    continue
                number = str(maker)
                if len(number) != digits or maker > last:
                    first = int(number[:digits]) + 1 if len(number) > digits else int(number.ljust(digits, "0"))
                    after = None
                    break
                yield entry
            else:
                if after is None:
                    first = int("1" + "0" * digits)

    async def is_visible(self, who: Principal, name: str) -> bool:
        """Return True if a file exists for the caller: another user's output does not."""
        job = job_of_output(name)
        if job is None or who.sees_all:
            return True
        try:
            await self._records.row(who, job)
        except NotFoundError:
            return False
        return True

    async def visible(self, who: Principal, entries: Iterable[CatalogueEntry]) -> list[CatalogueEntry]:
        """Return the entries that exist for the caller."""
        found = list(entries)
        if who.sees_all:
            return found
        own = await self._records.own_makers(who, [entry.name for entry in found])
        return [entry for entry in found if (job := job_of_output(entry.name)) is None or job in own]

    async def page(
        self, who: Principal, *, after: str | None, prefix: str, limit: int
    ) -> tuple[list[CatalogueEntry], str | None]:
        """Return files that exist for the caller, and the name to continue after; None at the end. That is the name
        of one of them, or a job's number: names of others' files are not revealed."""
        found: list[CatalogueEntry] = []
        for _ in range(LISTING_LOOKS_MAX):
            looked_at = await query(self._engine.store.files, after=after, prefix=prefix, limit=limit + 1)
            found += await self.visible(who, looked_at)
            if len(found) > limit:
                return found[:limit], found[limit - 1].name
            if len(looked_at) <= limit:
                return found, None
            last = looked_at[-1].name
            after = last if found and found[-1].name == last else _beyond_job(last)
        return found, after

    async def check_files(self, who: Principal, request: Request) -> None:
        """Check that the caller may read the inputs and write the outputs. Jobs read outputs of their own user's jobs
        only. Only the daemon's own user and operators may write to URLs, since the daemon does so with its own
        credentials, and only to writable ones."""
        for output in dict.fromkeys(output for component in request.components for output in component.outputs):
            if output.to is None or not output.to_url:
                continue
            if not who.sees_all:
                raise ForbiddenError(
                    f"output {output.path!r}: only the user who runs the daemon and operators may have outputs "
                    "written to URLs, since the daemon does so with its own credentials; name a site, or fetch it"
                )
            if not is_writable(output.to):
                raise InvalidError(
                    f"output {output.path!r}: {output.to!r} cannot be written to; name a site, or a URL with one of "
                    f"the schemes {', '.join(WRITABLE_SCHEMES)}"
                )
        for name in dict.fromkeys(file.name for component in request.components for file in component.input_files):
            job = job_of_output(name)
            if job is not None and not await self._is_made(who, job, name):
                whose = "" if who.sees_all else " of yours"
                raise InvalidError(
                    f"file {name!r}: there is no job {job}{whose} that makes it; look at the list of jobs"
                )
            if job is not None and name not in self._engine.entries and await self._is_over(who, job):
                raise InvalidError(f"file {name!r}: job {job} is over and has no such output; was it forgotten?")

    async def _is_over(self, who: Principal, job: int) -> bool:
        """Return True if the job has ended, so that it makes no more files."""
        try:
            return (await self._records.row(who, job)).ended_at is not None
        except NotFoundError:  # an element that is still to be made
            return False

    async def _is_made(self, who: Principal, job: int, name: str) -> bool:
        """Return True if a job that exists for the caller has made the file or may make it. A job with a later number
        cannot, for any caller."""
        if not who.sees_all:
            return await self.is_visible(who, name)
        try:
            await self._records.row(who, job)
        except NotFoundError:
            # An element that is still to be made, or the remains of a job that was removed from the record.
            element = self._engine.scheduler.ledger.array_of(job) is not None
            return element or await query(self._engine.store.file, name) is not None
        return True

    # --------------------------------------------------------------------------------------------- bytes

    async def read(self, who: Principal, name: str, offset: int, limit: int) -> bytes:
        """Return the bytes of a file from ``offset`` on; fewer than ``limit`` only at its end."""
        if not 0 <= offset <= COLLECTED_BYTES_MAX:
            raise InvalidError(f"offset: {offset} is not an offset in a file; write 0 or more")
        if not 1 <= limit <= DOWNLOAD_BYTES_MAX:
            raise InvalidError(f"limit: write 1 to {DOWNLOAD_BYTES_MAX} bytes (DOWNLOAD_BYTES_MAX)")
        entry = await query(self._engine.store.file, name)
        if entry is None or not await self.is_visible(who, name):
            raise NotFoundError(f"the catalogue has no file {name!r}; look at the list of files")
        async with self._turn(who):
            return await self._from_any(entry, offset, min(limit, max(0, entry.size_bytes - offset)))

    async def read_whole(self, who: Principal, names: Sequence[str]) -> list[tuple[ReadFile, bytes]]:
        """Return the first of these files that fit into one answer, whole and in this order. An unreadable file has a
        problem instead of bytes, and delays no other."""
        entries = [entry for name in names if (entry := self._engine.entries.get(name)) is not None]
        visible = {entry.name: entry for entry in await self.visible(who, entries)}
        room, problems, wanted = DOWNLOAD_BYTES_MAX, dict[str, str](), dict[str, CatalogueEntry]()
        for name in dict.fromkeys(names):
            entry = visible.get(name)
            if entry is None:
                problems[name] = "the catalogue has no such file; look at the list of files"
            elif entry.size_bytes > DOWNLOAD_BYTES_MAX:
                problems[name] = (
                    f"it has more than {DOWNLOAD_BYTES_MAX} bytes (DOWNLOAD_BYTES_MAX); read it in pieces"
                )
            elif entry.size_bytes > room:
                break
            else:
                problems[name] = ""
                wanted[name] = entry
                room -= entry.size_bytes
        found = dict[str, bytes]()
        async with self._turn(who):
            problems |= await self._read_wanted(wanted, found)
        return [
            (ReadFile(name=name, size_bytes=len(found.get(name, b"")), problem=problem), found.get(name, b""))
            for name, problem in problems.items()
        ]

    async def _read_wanted(self, wanted: Mapping[str, CatalogueEntry], found: dict[str, bytes]) -> dict[str, str]:
        """Read files from their sites, all of one site at once, and each from its next replica if one fails. Returns
        the problems of those that remain."""
        left = {
            name: sorted(entry.replicas, key=lambda each: each.url is not None, reverse=True)
            for name, entry in wanted.items()
        }
        reasons: dict[str, list[str]] = {name: [] for name in wanted}
        while turns := {name: replicas.pop() for name, replicas in left.items() if replicas and name not in found}:
            at_sites: dict[SiteName, dict[FileName, int]] = {}
            for name, replica in turns.items():
                if replica.url is None:
                    at_sites.setdefault(replica.site, {})[name] = wanted[name].size_bytes
                    continue
                try:
                    found[name] = await self._from_any(wanted[name], 0, wanted[name].size_bytes)
                except (ConflictError, UnavailableError) as error:
                    reasons[name].append(error.for_user())
            for site, files in at_sites.items():
                why = "the replica is not there, or not as large as the catalogue says"
                try:
                    async with asyncio.timeout(DOWNLOAD_S):
                        found |= await self._area(site).read_whole(files)
                except OSError as error:
                    why = _reason(error)
                for name in files.keys() - found.keys():
                    reasons[name].append(f"{site}: {why}")
        return {
            name: "; ".join(why) or "no site of the grid has it" for name, why in reasons.items() if name not in found
        }

    async def _from_any(self, entry: CatalogueEntry, offset: int, size_bytes: int) -> bytes:
        """Return bytes from the first replica that has them; a replica of another size is not the file."""
        reasons, damaged = [], False
        for replica in sorted(entry.replicas, key=lambda each: each.url is not None):
            try:
                async with asyncio.timeout(DOWNLOAD_S):
                    data = await self._from(entry, replica, offset, size_bytes)
            except (OSError, FilesError) as error:
                reasons.append(f"{replica.site}: {_reason(error)}")
                damaged |= isinstance(error, FileNotFoundError | MissingReplicaError)
                continue
            if len(data) == size_bytes:
                return data
            reasons.append(f"{replica.site}: the replica is shorter than the catalogue says")
            damaged = True
        why = "; ".join(reasons) or "no site of the grid has it"
        if damaged:
            raise ConflictError(f"file {entry.name!r} cannot be read: {why}; forget the damaged replica")
        raise UnavailableError(f"file {entry.name!r} cannot be read now: {why}; try again")

    async def _from(self, entry: CatalogueEntry, replica: Replica, offset: int, size_bytes: int) -> bytes:
        if replica.url is not None:
            source = await in_own_thread(UrlSource, entry.name, replica.site, replica.url)
            return await in_own_thread(source.read, offset, size_bytes)
        return (
            await self._area(replica.site).read(replica_path(entry.name), offset, size_bytes) if size_bytes else b""
        )

    def _area(self, site: SiteName) -> FileArea:
        area = self._engine.areas.get(site)
        if area is None:
            raise OSError("this site is not in the grid any more")
        return area

    @contextlib.asynccontextmanager
    async def _turn(self, who: Principal) -> AsyncIterator[None]:
        """Wait for a turn: a user's downloads wait for each other before they wait for others'."""
        turns, users = self._of_users.get(who.key, (asyncio.Semaphore(self._user_max), 0))
        self._of_users[who.key] = turns, users + 1
        try:
            async with turns, self._all:
                yield
        finally:
            turns, users = self._of_users.pop(who.key)
            if users > 1:
                self._of_users[who.key] = turns, users - 1


def _reason(error: Exception) -> str:
    if isinstance(error, FilesError):
        return error.message
    if isinstance(error, TimeoutError):
        return f"no answer within {DOWNLOAD_S:g} s"
    if isinstance(error, FileNotFoundError):
        return "the replica is not there"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _beyond_job(name: str) -> str:
    """Return a name after all outputs of the job that made this one, and before any other job's: the digit follows
    the separator after the job's number, and no file is named by a number alone."""
    number = name.removeprefix(OUTPUT_PREFIX).partition("/")[0].partition(".")[0]
    return f"{OUTPUT_PREFIX}{number}0"


def _told(job: int, entry: CatalogueEntry, request: Request) -> OutputInfo:
    head, _, path = entry.name.removeprefix(OUTPUT_PREFIX).partition("/")
    part = int(head.partition(".")[2] or 0)
    listed = {output.path for output in request.outputs_of(part)}
    directory = path not in listed and path.removesuffix(ARCHIVE_ENDING) in listed
    return OutputInfo.of(
        entry,
        job=job,
        part=part,
        path=path.removesuffix(ARCHIVE_ENDING) if directory else path,
        directory=directory,
        replicas=[ReplicaInfo.of(each) for each in entry.replicas],
    )
