"""Jobs in Globus RSL become exactly the requests that they describe."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_job, write_rsl
from koala.model.request import Application, Component, Flexibility, JobType, Request
from tests.support.description_samples import JOB_RSL, laplace

LAPLACE = Application(
    executable="/opt/laplace",
    arguments=("--size", "4000"),
    directory="run",
    environment=(("OMP_NUM_THREADS", "1"),),
    stdout="out.txt",
)


def arguments(values: str) -> tuple[str, ...]:
    """What a value sequence means."""
    return read_job(f"&(executable=x)(arguments={values})", "job.rsl").components[0].application.arguments


def test_a_full_multirequest_is_read_field_by_field() -> None:
    assert read_job(JOB_RSL, "job.rsl") == laplace(LAPLACE)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a b", ("a", "b")),
        ('"a b"', ("a b",)),
        ('"say ""no"""', ('say "no"',)),
        ("'it''s'", ("it's",)),
        ('^%50%% "off"%', ('50% "off"',)),
        ("^|a=b|", ("a=b",)),
        ('a # "b c" # d', ("ab cd",)),
        ("a (* not this ) *) b", ("a", "b")),
        ('"(* kept *)"', ("(* kept *)",)),
        ("", ()),
        ('""', ("",)),
        ('"two\nlines"', ("two\nlines",)),
        ("$(NONE fallback)", ("fallback",)),
        ('$(NONE "two words")', ("two words",)),
        ("http://host:80/a?b,c", ("http://host:80/a?b,c",)),
    ],
)
def test_values_are_quoted_joined_and_commented_as_in_globus(written: str, meant: tuple[str, ...]) -> None:
    assert arguments(written) == meant


def test_variables_are_replaced_and_join_what_stands_beside_them() -> None:
    request = read_job(
        "&(rsl_substitution=(A /opt)(B $(A)/bin))(executable=$(B)/x)(arguments=$(A) y$(B)z $(A) # q)", "job.rsl"
    )
    assert request.components[0].application.executable == "/opt/bin/x"
    assert request.components[0].application.arguments == ("/opt", "y/opt/binz", "/optq")


def test_attribute_names_ignore_case_and_underscores() -> None:
    assert read_job("&(COUNT=2)(Max_Wall_Time=1)", "-") == read_job("&(count=2)(maxWallTime=1)", "-")


def test_a_nested_conjunction_counts_as_one_subrequest() -> None:
    assert read_job("&(&(count=2))(stdout=o)", "-") == read_job("&(count=2)(stdout=o)", "-")


def test_a_subrequest_without_a_count_is_one_processor() -> None:
    assert read_job("&(executable=x)", "-").processors == 1


def test_koala_attributes_describe_a_flexible_job() -> None:
    request = read_job(
        "&(count=24)(koalaFlexible=yes)(koalaComponentMin=2)(koalaComponentsMax=3)(koalaSplits=(18 6)(12 12))", "-"
    )
    assert request.flexible == Flexibility(component_min=2, components_max=3, splits=((18, 6), (12, 12)))


def test_attributes_of_the_job_may_stand_in_any_subrequest_if_they_agree() -> None:
    request = read_job("+(&(count=1))(&(count=2)(jobType=mpi))(&(count=3)(jobType=MPI)(koalaName=n))", "-")
    assert request.job_type is JobType.MPI
    assert request.name == "n"
    assert [component.processors for component in request.components] == [1, 2, 3]


def test_a_barrier_may_be_asked_for_because_there_always_is_one() -> None:
    assert read_job("&(subjobStartType=strict-barrier)", "-") == Request(components=(Component(processors=1),))


def test_whole_minutes_are_written_in_the_words_of_globus_and_other_times_in_seconds() -> None:
    assert "(maxWallTime=15)" in write_rsl(Request(components=(Component(processors=1),), walltime_s=900.0))
    assert "(koalaWalltimeSeconds=0.5)" in write_rsl(Request(components=(Component(processors=1),), walltime_s=0.5))


def test_what_a_job_waits_for_and_an_array_have_words() -> None:
    text = (
        '&(executable=/bin/true)(koalaAfter=(done 17 18)(ended 19_3))(koalaBegin="now+2h")(koalaHold=yes)'
        '(koalaArray="0-9%2")'
    )
    request = read_job(text, "job.rsl")
    assert [(each.condition, each.job, each.index) for each in request.after] == [
        ("done", 17, None),
        ("done", 18, None),
        ("ended", 19, 3),
    ]
    assert (request.begin_in_s, request.hold, str(request.array)) == (7_200.0, True, "0-9%2")
    assert read_job(write_rsl(request), "job.rsl") == request
    assert read_job("&(executable=/bin/true)(koalaBegin=1893456000)", "job.rsl").begin_at == 1_893_456_000.0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("(koalaAfter=17)", "nothing that a job can wait for"),
        ("(koalaAfter=(finished 17))", "'finished 17' is nothing to wait for"),
        ("(koalaAfter=(done 0))", "'done 0' is nothing to wait for"),
        ("(koalaBegin=tomorrow)", "'tomorrow' is not a time"),
        ("(koalaArray=9-0)", "the indices do not increase"),
        ("(fileStageOut=(out_*.txt))", "patterns and variables are not filled in"),
    ],
)
def test_a_wrong_order_says_what_to_write(wrong: str, told: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(f"&(executable=/bin/true){wrong}", "job.rsl")
    assert told in caught.value.for_user()
