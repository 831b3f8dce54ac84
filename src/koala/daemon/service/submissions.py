"""From the text of a submission to a request that can be carried out, and where it would go now.

Reading a large text takes seconds, so it is done off the event loop and in turns: no caller's texts keep another's
waiting for long, and nothing else of the daemon waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from koala.core.refusals import refusal_of
from koala.core.state.sites import Sites
from koala.daemon.launches import check_launch
from koala.daemon.service.answers import dry_run, refusal_info
from koala.daemon.service.principal import Principal
from koala.descriptions import DescriptionError, read_job
from koala.model.api import DryRun, ProblemAt, Submission
from koala.model.errors import InvalidError, TooManyError
from koala.model.launch import LaunchError
from koala.model.request import Priority, Request
from koala.policies import Catalogue, PolicyError, UnknownPolicyError, UnknownSiteError
from koala.policies.front_door import compile_demand, to_placement, try_place

# Texts up to this size have a thread of their own, so that a small job never waits for somebody's large one.
SMALL_TEXT_CHARACTERS_MAX = 16_384
# So much text of one caller may wait to be read, or one text that is larger by itself.
WAITING_TEXT_CHARACTERS_MAX = 1_048_576


@dataclass(slots=True)
class _Turn:
    """One caller's texts of one sort: how much waits, and the lock that lets one of them be read at a time."""

    characters: int = 0
    texts: int = 0
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)


class SubmissionReader:
    """Reads the texts of many callers: small and large ones in a thread each, of one caller one text at a time. So a
    text waits for at most one of the same sort of every other caller. Lives in one event loop."""

    def __init__(self) -> None:
        self._threads = {small: ThreadPoolExecutor(1, thread_name_prefix="koala-parse") for small in (True, False)}
        self._turns: dict[tuple[bool, bool, str], _Turn] = {}

    def close(self) -> None:
        """Read no more."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def read(
        self, who: Principal, wish: Submission, *, sites: Collection[str], policies: Collection[str]
    ) -> Request:
        """The request that a text describes. ``InvalidError`` with every problem found in it, ``TooManyError`` when
        too much of this caller waits already."""
        size = len(wish.description)
        small = size <= SMALL_TEXT_CHARACTERS_MAX
        read = functools.partial(read_submission, wish, sites=sites, policies=policies)
        with self._turn_of(who, small=small, size=size) as turn:
            async with turn.alone:
                return await asyncio.get_running_loop().run_in_executor(self._threads[small], read)

    @contextlib.contextmanager
    def _turn_of(self, who: Principal, *, small: bool, size: int) -> Iterator[_Turn]:
        key = (small, who.owner, who.name)
        turn = self._turns.setdefault(key, _Turn())
        if turn.texts and turn.characters + size > WAITING_TEXT_CHARACTERS_MAX:
            raise TooManyError(
                f"descriptions of {who.name} with {turn.characters} characters wait to be read already, and together "
                f"they may have {WAITING_TEXT_CHARACTERS_MAX} (WAITING_TEXT_CHARACTERS_MAX); send one after the other"
            )
        turn.characters += size
        turn.texts += 1
        try:
            yield turn
        finally:
            turn.characters -= size
            turn.texts -= 1
            if not turn.texts:
                del self._turns[key]


def read_submission(wish: Submission, *, sites: Collection[str], policies: Collection[str]) -> Request:
    """The request that the text describes. ``InvalidError`` with every problem found in it; slow for a large text."""
    try:
        request = read_job(wish.description, wish.source, known_sites=sites, known_policies=policies)
    except DescriptionError as error:
        raise _unreadable(error) from None
    try:
        check_launch(request)
    except LaunchError as error:
        raise InvalidError(
            f"the job cannot be run: {error.for_user()}", [ProblemAt(message=error.for_user())]
        ) from None
    return request


def check_client_token(token: str | None) -> None:
    """``InvalidError`` for a client token that is not visible text."""
    if token is not None and not token.isprintable():
        raise InvalidError("client_token: it holds characters that are not visible; use letters and digits")


def try_out(request: Request, *, catalogue: Catalogue, default_policy: str, sites: Sites) -> DryRun:
    """What the core would answer if it were asked now."""
    view = sites.view
    try:
        demand = compile_demand(request, catalogue.choose(request, default_policy), view.index)
        spots = try_place(demand, view)
        if spots is not None:
            return dry_run(to_placement(demand, spots, view))
        refusal = refusal_of(demand, sites.seen_now(), sites, high=request.priority is Priority.HIGH)
    except (UnknownPolicyError, UnknownSiteError, PolicyError) as error:
        raise InvalidError(error.for_user()) from None
    return DryRun(policy=demand.policy.name, refusal=refusal_info(refusal))


def _unreadable(error: DescriptionError) -> InvalidError:
    problems = [
        ProblemAt(line=problem.line, column=problem.column, message=problem.message, cure=problem.advice)
        for problem in error.problems
    ]
    place = error.source if error.line is None else f"{error.source}:{error.line}:{error.column}"
    more = len(problems) - 1 + error.problems_unreported
    others = "" if more == 0 else f" (and {more} more {'problem' if more == 1 else 'problems'})"
    return InvalidError(f"{place}: {error.message}; {error.advice}{others}", problems)
