"""The catalogue: finding policies by name, and taking up those that users and packages bring."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.descriptions.fields import POLICY_PATTERN, is_name
from koala.model.request import Component, Flexibility, Request
from koala.policies import Catalogue, Form, PolicyFileError, UnknownPolicyError, policy
from koala.policies.builtin import LSLT_MAX
from koala.policies.catalogue import NAME_CHARACTERS_MAX, PARAMETRIZED_REMEMBERED
from koala.policies.errors import NAMES_SHOWN_MAX
from koala.policies.forms import ModuleChoice
from koala.policies.minigrid.meta_scheduling import A1_FEWEST, A1_LEAST, A1_MOST_FREE, A2, B1, B3
from tests.support.policy_worlds import FIRST_FIT


def file_error(text: str) -> PolicyFileError:
    catalogue = Catalogue.builtin()
    with pytest.raises(PolicyFileError) as caught:
        catalogue.add_from_source(textwrap.dedent(text), "mine.py")
    assert catalogue.names() == Catalogue.builtin().names()
    return caught.value


def test_the_catalogue_holds_the_policies_of_koala() -> None:
    catalogue = Catalogue.builtin()
    assert catalogue.names() == (
        "WF",
        "CM",
        "FCM",
        "CF",
        "NCM",
        "NFCM",
        "FCF",
        *("Migration-Only", "Initial", "Ideal", "A1", "A2", "B1", "B2", "B3", "B4", "B5"),
        *("WASE", "WASE-whole"),
    )
    assert all(known.origin == "koala" and not known.checked and known.summary for known in catalogue)


def test_names_are_found_in_any_case() -> None:
    assert Catalogue.builtin().find("fcm").name == "FCM"


def test_an_unknown_name_gets_what_comes_near_and_all_names() -> None:
    with pytest.raises(UnknownPolicyError) as caught:
        Catalogue.builtin().find("FCN")
    assert "'FCN'" in caught.value.for_user()
    assert "did you mean FCM" in caught.value.for_user()
    assert "WF, CM, FCM, CF" in caught.value.for_user()


def test_a_long_list_of_names_is_cut_short() -> None:
    names = [f"P{number}" for number in range(NAMES_SHOWN_MAX + 2)]
    message = UnknownPolicyError("zzz", names).for_user()
    assert message.endswith(f"P{NAMES_SHOWN_MAX - 1} and 2 more")


def test_a_flexible_policy_places_given_sizes_by_cluster_minimization() -> None:
    catalogue = Catalogue.builtin()
    assert catalogue.find("FCM").components_policy is catalogue.find("CM")


def test_each_policy_that_divides_places_given_sizes_by_the_one_that_looks_at_the_same_things() -> None:
    catalogue = Catalogue.builtin()
    placing = {known.name: known.components_policy and known.components_policy.name for known in catalogue}
    by_links = {known.name: "CM" for known in catalogue if known.form in (Form.LINKS, Form.TASKS)}
    others = {"WF": None, "CM": None, "FCM": "CM", "CF": None, "NCM": None, "NFCM": "NCM", "FCF": "CF"}
    assert placing == others | by_links
    assert all(known.form.divides == (known.components_policy is not None) for known in catalogue)


@pytest.mark.parametrize(
    ("written", "name", "choice"),
    [
        ("B3", "B3", ModuleChoice(B3, 1.0, 0.85)),
        ("b3()", "B3", ModuleChoice(B3, 1.0, 0.85)),
        ("B3(chunk=0.9)", "B3(chunk=0.9)", ModuleChoice(B3, 1.0, 0.9)),
        ("B3(0.9)", "B3(chunk=0.9)", ModuleChoice(B3, 1.0, 0.9)),
        ("b3( LSLT=.8 , chunk=1 )", "B3(chunk=1, lslt=0.8)", ModuleChoice(B3, 0.8, 1.0)),
        ("B3(0.9, 1.2)", "B3(chunk=0.9, lslt=1.2)", ModuleChoice(B3, 1.2, 0.9)),
        ("B1(lslt=0.8)", "B1(lslt=0.8)", ModuleChoice(B1, 0.8)),
        ("A1(order=most-free)", "A1(order=most-free)", ModuleChoice(A1_MOST_FREE)),
        ("A1(objective=Fewest-Clusters)", "A1(objective=fewest-clusters)", ModuleChoice(A1_FEWEST)),
        (
            "A1(objective=least-bandwidth, lslt=1.1)",
            "A1(objective=least-bandwidth, lslt=1.1)",
            ModuleChoice(A1_LEAST, 1.1),
        ),
        ("A2", "A2", ModuleChoice(A2, 1.1)),
    ],
)
def test_parameters_stand_behind_the_name_and_are_said_back_in_one_form(
    written: str, name: str, choice: ModuleChoice
) -> None:
    catalogue = Catalogue.builtin()
    found = catalogue.find(written)
    assert (found.name, found.module) == (name, choice)
    assert catalogue.find(found.name) == found
    assert is_name(found.name, POLICY_PATTERN), "a job file can write it"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("B3(chunk=0.85", "nothing closes the parenthesis"),
        ("B3(chunk=1.5)", "'1.5' is no value for chunk; write a share of the job"),
        ("B3(chunk=much)", "'much' is no value for chunk"),
        ("B3(chunk=nan)", "'nan' is no value for chunk"),
        ("B3(chunk=)", "'chunk=' is no parameter with a value"),
        ("B3(=1)", "'=1' is no parameter with a value"),
        ("B3(size=1)", "B3 has no parameter 'size'; the parameters are: chunk, lslt"),
        ("B3(0.8, chunk=0.9)", "chunk is given twice"),
        ("B3(chunk=0.8, 1)", "behind one with a name"),
        ("B1(1, 2)", "too many values; the parameters are: lslt"),
        ("B1(lslt=0)", "'0' is no value for lslt"),
        (f"B1(lslt={LSLT_MAX + 0.5})", f"up to {LSLT_MAX:g}"),
        ("A1(order=random)", "write index or most-free"),
        ("A1(order=index, objective=least-bandwidth)", "keep one"),
        ("WF(1)", "WF has no parameters; write WF"),
        ("B9(chunk=1)", "there is no policy 'B9'"),
        (
            f"B3(chunk=0.{'8' * 100_000})",
            "8...': the name has 100012 characters; write 255 or less",
        ),
    ],
)
def test_what_is_wrong_with_parameters_is_said_with_what_there_is(written: str, problem: str) -> None:
    with pytest.raises(UnknownPolicyError) as caught:
        Catalogue.builtin().find(written)
    assert problem in caught.value.for_user()


def test_the_largest_threshold_is_read() -> None:
    assert Catalogue.builtin().find(f"B1({LSLT_MAX})").module == ModuleChoice(B1, LSLT_MAX)


def test_no_more_names_with_parameters_are_remembered_than_the_limit() -> None:
    catalogue = Catalogue.builtin()
    first = catalogue.find("B3(chunk=0.5)")
    assert catalogue.find("B3(chunk=0.5)") is first
    for number in range(1, PARAMETRIZED_REMEMBERED + 1):
        catalogue.find(f"B3(chunk={number / (PARAMETRIZED_REMEMBERED + 1)!r})")
    assert catalogue.find("B3(chunk=0.5)") is not first


@given(st.floats(min_value=0, exclude_min=True, max_value=1), st.floats(min_value=0, exclude_min=True, max_value=1))
def test_different_values_never_have_the_same_name(one: float, other: float) -> None:
    catalogue = Catalogue.builtin()
    names = [catalogue.find(f"B3({value!r})").name for value in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_a_users_file_adds_its_policies_under_their_names() -> None:
    catalogue = Catalogue.builtin()
    (added,) = catalogue.add_from_source(FIRST_FIT, "mine.py")
    assert catalogue.find("ff") is added
    assert (added.origin, added.checked, added.form) == ("mine.py", True, Form.COMPONENTS)
    assert added.summary == "First fit: the first site that has room."


def test_one_catalogue_knows_nothing_of_what_another_was_given() -> None:
    Catalogue.builtin().add_from_source(FIRST_FIT, "mine.py")
    with pytest.raises(UnknownPolicyError):
        Catalogue.builtin().find("FF")


def test_the_summary_is_by_default_the_first_line_of_the_docstring() -> None:
    text = '''
        from koala.policies import policy

        @policy("X")
        def x(idle, sizes, left, chosen):
            """Refuses everything.

            More about that."""
            return 0
        '''
    (added,) = Catalogue.builtin().add_from_source(textwrap.dedent(text), "mine.py")
    assert added.summary == "Refuses everything."


def test_the_decorator_leaves_the_function_as_it_is() -> None:
    @policy("X")
    def x(idle: list[int], sizes: list[int], left: list[int], chosen: list[int]) -> int:
        return len(sizes)

    assert x([], [1, 2], [], []) == 2


def test_a_syntax_error_is_told_with_its_line() -> None:
    error = file_error("x = 1\ndef broken(:\n")
    assert error.line == 2
    assert error.for_user().startswith("mine.py, line 2: this is not Python")


def test_a_file_that_is_no_text_is_refused() -> None:
    assert "not Python" in file_error("x = '\0'").for_user()


def test_whatever_a_file_raises_is_told_with_the_line_that_raised_it() -> None:
    error = file_error("def boom():\n    return 1 / 0\n\nboom()\n")
    assert error.line == 2
    assert "ZeroDivisionError" in error.for_user()
    assert "Own: stop" in file_error("class Own(BaseException): pass\nraise Own('stop')").for_user()
    assert "SystemExit" in file_error("raise SystemExit(0)").for_user()


def test_a_file_without_a_policy_is_told_how_to_register_one() -> None:
    assert "@policy" in file_error("def f(): return 1").for_user()


def test_a_name_that_is_taken_is_refused_and_nothing_of_the_file_is_kept() -> None:
    text = FIRST_FIT + FIRST_FIT.replace('"FF"', '"wf"').replace("def first_fit", "def other")
    error = file_error(text)
    assert "already a policy 'WF' (from koala)" in error.for_user()
    assert error.line is not None


def test_a_function_with_the_wrong_parameters_is_told_the_right_ones() -> None:
    error = file_error("from koala.policies import policy\n@policy('X', 'files')\ndef x(idle, sizes): return -1\n")
    assert "(idle, sizes, transfer_s, left, chosen)" in error.for_user()
    assert error.line is not None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [("'X', 'elastic'", "components, files, flexible"), ("''", "no name"), ("'my+pol'", "letters, digits")],
)
def test_a_wrong_mark_is_told_with_its_line(arguments: str, told: str) -> None:
    error = file_error(f"from koala.policies import policy\n@policy({arguments})\ndef x(a, b, c, d): return -1\n")
    assert error.line == 2
    assert told in error.for_user()


def test_a_mark_without_parentheses_is_told_how_to_write_it() -> None:
    error = file_error("from koala.policies import policy\n@policy\ndef x(a, b, c, d): return -1\n")
    assert error.line == 2
    assert 'write @policy("name")' in error.for_user()


@given(st.text(max_size=6) | st.text(st.characters(categories=["L", "N"], include_characters="_.+-"), max_size=6))
def test_a_policy_can_have_just_the_names_that_a_job_can_write(name: str) -> None:
    try:
        policy(name)
    except ValueError:
        assert not is_name(name)
    else:
        assert is_name(name)


def test_a_name_has_a_longest_length() -> None:
    policy("x" * NAME_CHARACTERS_MAX)
    with pytest.raises(ValueError, match=str(NAME_CHARACTERS_MAX)):
        policy("x" * (NAME_CHARACTERS_MAX + 1))


def entry_point(folder: Path, source: str, name: str = "ff", attribute: str = "first_fit") -> None:
    """What an installed package with an entry point looks like on the path."""
    (folder / "first_fit_package.py").write_text(source, encoding="utf-8")
    info = folder / "first_fit_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-fit-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[koala.policies]\n{name} = first_fit_package:{attribute}\n", encoding="utf-8"
    )


def loaded(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Catalogue:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "first_fit_package", raising=False)
    catalogue = Catalogue.builtin()
    catalogue.load_entry_points()
    return catalogue


def test_policies_of_installed_packages_are_taken_up_when_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry_point(tmp_path, FIRST_FIT)
    found = loaded(monkeypatch, tmp_path).find("FF")
    assert (found.origin, found.checked) == ("entry point ff", True)


@pytest.mark.parametrize(
    ("source", "attribute", "told"),
    [
        (FIRST_FIT, "gone", "cannot be loaded"),
        ("import no_such_module_anywhere", "first_fit", "cannot be loaded"),
        ("raise SystemExit(1)", "first_fit", "cannot be loaded"),
        ("def first_fit(): pass", "first_fit", "not marked as a policy"),
    ],
)
def test_a_broken_entry_point_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, attribute: str, told: str
) -> None:
    entry_point(tmp_path, source, attribute=attribute)
    with pytest.raises(PolicyFileError) as caught:
        loaded(monkeypatch, tmp_path)
    assert "entry point ff" in caught.value.for_user()
    assert told in caught.value.for_user()


def test_importing_the_policies_loads_no_compiler_and_no_package_metadata() -> None:
    check = "import koala.policies, sys; print({'numba', 'numpy', 'importlib.metadata'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-I", "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("named", "grids", "chosen"),
    [
        (None, "WF", "FCM"),
        (None, "CM", "FCM"),
        (None, "CF", "FCF"),
        (None, "NCM", "NFCM"),
        (None, "fcf", "FCF"),
        ("WF", "FCM", "WF"),
    ],
)
def test_a_total_goes_to_a_policy_that_divides_unless_its_job_names_another(
    named: str | None, grids: str, chosen: str
) -> None:
    request = Request(components=(Component(processors=9),), flexible=Flexibility(), policy=named)
    assert Catalogue.builtin().choose(request, grids).name == chosen


def test_sizes_and_splits_go_to_the_grids_policy() -> None:
    catalogue = Catalogue.builtin()
    sizes = Request(components=(Component(processors=9),))
    assert catalogue.choose(sizes, "WF").name == "WF"
    splits = Request(components=(Component(processors=9),), flexible=Flexibility(splits=((5, 4),)))
    assert catalogue.choose(splits, "WF").name == "WF"
    with pytest.raises(UnknownPolicyError):
        catalogue.choose(sizes, "nothing")
