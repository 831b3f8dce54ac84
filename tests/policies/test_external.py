"""Policies that users bring: right answers are taken, wrong ones are named and never placed."""

from __future__ import annotations

import textwrap

import pytest

from koala.model.request import Component, InputFile, Request
from koala.policies import Catalogue, Form, Policy, PolicyError
from koala.policies.catalogue import PARAMETERS
from koala.policies.interface import FileAt, Spots, View, compile_demand, refuse, try_place
from tests.support.policy_worlds import FIRST_FIT, components, flexible, view_of


def answer_of(body: str, form: Form, request: Request, view: View) -> Spots | None:
    """What a policy with this body makes of the request."""
    text = (
        f"from koala.policies import policy\n@policy('X', '{form}')\n"
        f"def x({', '.join(PARAMETERS[form])}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    )
    (added,) = Catalogue.builtin().add_from_source(text, "mine.py")
    return try_place(compile_demand(request, added, view.index), view)


def wrong(body: str, form: Form, request: Request, view: View | None = None) -> str:
    with pytest.raises(PolicyError) as caught:
        answer_of(body, form, request, view_of(10, 10) if view is None else view)
    message = caught.value.for_user()
    assert "'X' (from mine.py)" in message
    return message


def test_a_users_policy_places_jobs() -> None:
    (first_fit,) = Catalogue.builtin().add_from_source(FIRST_FIT, "mine.py")
    view = view_of(6, 10, 20)
    demand = compile_demand(components(2, 5, 8), first_fit, view.index)
    assert try_place(demand, view) == Spots((1, 0, 1), (2, 5, 8))


def test_a_users_policy_that_refuses_is_explained_like_ours() -> None:
    (first_fit,) = Catalogue.builtin().add_from_source(FIRST_FIT, "mine.py")
    view = view_of(6, 10, limit=(20, 20))
    demand = compile_demand(components(8, 8), first_fit, view.index)
    assert try_place(demand, view) is None
    refusal = refuse(demand, view.idle, view)
    assert refusal.component == 1
    assert refusal.cure.startswith("2 more idle processors on C1")


REFUSES_ALL = "from koala.policies import policy\n@policy('X', '{form}')\ndef x({names}): return {answer}\n"


def refusing(form: Form, answer: str) -> Policy:
    text = REFUSES_ALL.format(form=form, names=", ".join(PARAMETERS[form]), answer=answer)
    (added,) = Catalogue.builtin().add_from_source(text, "mine.py")
    return added


def test_a_policy_that_refuses_what_would_fit_is_said_to_have_done_so() -> None:
    view = view_of(9)
    refusal = refuse(compile_demand(components(3), refusing(Form.COMPONENTS, "0"), view.index), view.idle, view)
    assert "was given no place by X, though C1 has 9 left" in refusal.reason
    assert refusal.reason.endswith("the policy refuses this even on an idle grid")
    assert refusal.cure == "another policy, or a change to X (from mine.py)"
    assert not refusal.permanent
    assert refusal.shortages[0].missing == 0


def test_a_flexible_policy_that_refuses_what_would_fit_is_said_to_have_done_so() -> None:
    view = view_of(9, 9)
    refusal = refuse(compile_demand(flexible(12), refusing(Form.FLEXIBLE, "total"), view.index), view.idle, view)
    assert refusal.reason.endswith("the policy refuses this even on an idle grid")
    assert refusal.cure == "another policy, or a change to X (from mine.py)"
    assert not refusal.permanent


@pytest.mark.parametrize(
    ("request_", "form", "answer"),
    [
        (components(10), Form.COMPONENTS, "0"),
        (components(9, 9, 1), Form.COMPONENTS, "0"),
        (Request(components=(Component(processors=8, site="C2"), Component(processors=5))), Form.COMPONENTS, "0"),
        (flexible(18, component_min=6), Form.FLEXIBLE, "total"),
        (flexible(12, components_max=1), Form.FLEXIBLE, "total"),
    ],
)
def test_what_no_policy_could_place_is_permanent_under_a_users_policy_too(
    request_: Request, form: Form, answer: str
) -> None:
    view = view_of(9, 4, 4)
    demand = compile_demand(request_, refusing(form, answer), view.index)
    refusal = refuse(demand, view.idle, view)
    assert refusal.permanent
    assert "the policy refuses this" not in refusal.reason


def test_a_users_flexible_policy_divides_totals_and_leaves_given_sizes_to_cluster_minimization() -> None:
    body = "parts[len(idle) - 1] = total\nreturn 0"
    assert answer_of(body, Form.FLEXIBLE, flexible(4), view_of(10, 10)) == Spots((1,), (4,))
    assert answer_of(body, Form.FLEXIBLE, components(4), view_of(10, 10)) == Spots((0,), (4,))


def test_a_users_policy_by_files_sees_the_transfer_times() -> None:
    view = view_of(10, 10)
    view.files["f"] = FileAt(10**6, (1,))
    request = Request(components=(Component(processors=2, input_files=(InputFile(name="f"),)),))
    body = "chosen[0] = min(range(len(idle)), key=lambda site: transfer_s[0][site])\nreturn -1"
    assert answer_of(body, Form.FILES, request, view) == Spots((1,), (2,))
    view.bytes_per_s[1][0] = 0.0
    assert "files cannot be brought" in wrong("chosen[0] = 0\nreturn -1", Form.FILES, request, view)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return -1", "the site -1"),
        ("chosen[0] = 2; chosen[1] = 0; return -1", "the site 2, of 0 to 1"),
        ("chosen[0] = chosen[1] = 0; return -1", "put 6 processors on site 0, where 4 of 10 are left"),
        ("chosen[0] = 'C1'; return -1", "'C1' as the site of component 0"),
        ("chosen.clear(); return -1", "did not fill in the site of component 0"),
        ("return 2", "returned 2"),
        ("return None", "returned None, which is not a whole number"),
        ("return idle[99]", "raised IndexError at line 4"),
        ("idle[0] = 100", "raised TypeError"),
        ("raise SystemExit(3)", "raised SystemExit at line 4: 3"),
        ("class Own(BaseException): pass\nraise Own('no')", "raised Own at line 5: no"),
    ],
)
def test_a_wrong_answer_about_components_is_named(body: str, told: str) -> None:
    assert told in wrong(body, Form.COMPONENTS, components(6, 6))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("parts[0] = 11; return 0", "put 11 processors on site 0, where 10 are idle"),
        ("parts[0] = -1; return 0", "put -1 processors on site 0"),
        ("parts[0] = 10; parts[1] = 2; return 0", "a part of 2 processors, below the minimum of 3"),
        ("parts[0] = parts[1] = parts[2] = 4; return 0", "made 3 parts, more than the 2 allowed"),
        ("parts[0] = 10; return 0", "made parts of 10 processors in all, for a total of 12"),
        ("return 13", "returned 13"),
        ("return -1", "returned -1"),
        ("parts[0] = 4.0; return 0", "4.0 as the part of site 0"),
    ],
)
def test_a_wrong_division_is_named(body: str, told: str) -> None:
    request = flexible(12, component_min=3, components_max=2)
    assert told in wrong(body, Form.FLEXIBLE, request, view_of(10, 10, 10))


def test_an_interrupt_from_the_keyboard_passes_through_a_users_policy() -> None:
    with pytest.raises(KeyboardInterrupt):
        answer_of("raise KeyboardInterrupt", Form.COMPONENTS, components(1), view_of(10))
