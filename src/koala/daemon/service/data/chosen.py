"""Finds the files of the catalogue that a caller wants to forget: by name, by pattern, or by the job that made
them."""

from __future__ import annotations

import fnmatch
import re

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import offload
from koala.daemon.service.job_records import JobRecords
from koala.daemon.service.principal import Principal
from koala.model.api import Scope
from koala.model.api.questions import Forgetting
from koala.model.errors import InvalidError, NotFoundError
from koala.model.outputs import job_of_output
from koala.model.request import FileName

_SPECIAL = re.compile(r"[*?\[]")


class FileChoice:
    """Finds the files that a caller may forget, by name and in order."""

    def __init__(self, engine: Engine, records: JobRecords) -> None:
        self._engine = engine
        self._records = records

    async def files(self, who: Principal, wish: Forgetting) -> list[FileName]:
        """Return the chosen files. Needs ``operate``, or ``submit`` for outputs of the caller's jobs."""
        given = [each for each in (wish.name, wish.pattern, wish.job) if each is not None]
        if len(given) != 1:
            raise InvalidError("name: name a file, a pattern or a job, one of the three")
        if wish.name is not None:
            await self._check_own(who, job_of_output(wish.name))
            if wish.name not in self._engine.entries:
                raise NotFoundError(f"the catalogue has no file {wish.name!r}; look at the list of files")
            return [wish.name]
        if wish.job is not None:
            await self._check_own(who, wish.job)
            return self._at(wish, await self._made(who, wish.job))
        assert wish.pattern is not None, "one of the three is given"
        who.need(Scope.OPERATE if who.may(Scope.OPERATE) else Scope.SUBMIT)
        return self._at(wish, await self._fitting(who, wish.pattern))

    async def _check_own(self, who: Principal, job: int | None) -> None:
        if job is None or who.may(Scope.OPERATE):
            who.need(Scope.OPERATE)
        else:
            await self._records.own_row(who, job)

    async def _made(self, who: Principal, job: int) -> list[FileName]:
        row = await self._records.row(who, job)
        last = job if row.elements is None else job + row.elements.size
        names = list(self._engine.entries)
        found = await offload(lambda: sorted(name for name in names if job <= (job_of_output(name) or 0) <= last))
        if not found:
            raise NotFoundError(f"job {job} has no outputs; look at the list of files")
        return found

    async def _fitting(self, who: Principal, pattern: str) -> list[FileName]:
        prefix = _SPECIAL.split(pattern, maxsplit=1)[0]
        names, fits = list(self._engine.entries), re.compile(fnmatch.translate(pattern)).match
        found = await offload(lambda: sorted(name for name in names if name.startswith(prefix) and fits(name)))
        if not who.may(Scope.OPERATE):
            own = await self._records.own_makers(who, found)
            found = [name for name in found if job_of_output(name) in own]
        if not found:
            mine = "" if who.may(Scope.OPERATE) else " of yours"
            raise NotFoundError(f"no file{mine} fits {pattern!r}; look at the list of files")
        return found

    def _at(self, wish: Forgetting, names: list[FileName]) -> list[FileName]:
        """Return the files that have a replica at the named site, or all without one."""
        if wish.site is None:
            return names
        entries = self._engine.entries
        found = [name for name in names if name in entries and entries[name].replica_at(wish.site) is not None]
        if not found:
            raise NotFoundError(f"none of these {len(names)} files is at {wish.site}; look at the list of files")
        return found
