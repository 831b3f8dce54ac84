"""From the text of a submission to a request that can be carried out, and where it would go now."""

from __future__ import annotations

from collections.abc import Collection

from koala.daemon.answers import dry_run, refusal_info
from koala.daemon.errors import InvalidError
from koala.daemon.launches import check_launch
from koala.descriptions import DescriptionError, read_job
from koala.launching import LaunchError
from koala.model import Request
from koala.policies import Catalogue, PolicyError, UnknownPolicyError, UnknownSiteError
from koala.policies.placing import View, compile_demand, refuse, to_placement, try_place
from koala.wire import DryRun, ProblemAt, Submission


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


def try_out(request: Request, *, catalogue: Catalogue, default_policy: str, view: View) -> DryRun:
    """What the core would answer if it were asked on this view now."""
    try:
        demand = compile_demand(request, catalogue.find(request.policy or default_policy), view.index)
        spots = try_place(demand, view)
        if spots is not None:
            return dry_run(to_placement(demand, spots, view))
        refusal = refuse(demand, view.idle, view)
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
