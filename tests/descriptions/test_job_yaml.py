"""Jobs in YAML become exactly the requests that they describe."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_job, write_job_yaml, write_rsl
from koala.descriptions.fields import duration_s
from koala.model.request import (
    Application,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    InvalidRequestError,
    Priority,
    Request,
)
from tests.support.description_samples import JOB_YAML, laplace

LAPLACE = Application(
    executable="/opt/laplace",
    arguments=("--size", "4000"),
    directory="run",
    environment=(("OMP_NUM_THREADS", "1"),),
    stdout="out.txt",
)


def test_a_full_job_is_read_field_by_field() -> None:
    assert read_job(JOB_YAML, "job.yaml") == laplace(LAPLACE)


def test_a_size_alone_is_a_job_of_one_component() -> None:
    assert read_job("processors: 24", "-") == Request(components=(Component(processors=24),))


def test_a_flexible_job_has_one_component_and_its_bounds() -> None:
    text = "flexible: {processors: 24, component_min: 2, components_max: 3, splits: [[18, 6], [12, 12]]}"
    assert read_job(text, "job.yml") == Request(
        components=(Component(processors=24),),
        flexible=Flexibility(component_min=2, components_max=3, splits=((18, 6), (12, 12))),
    )


def test_a_component_replaces_keys_of_the_application_and_the_list_of_files() -> None:
    request = read_job(
        """
application: {executable: /bin/a, arguments: [x], directory: d, environment: {A: "1", B: "2"}}
input_files: [f]
components:
  - {processors: 1}
  - {processors: 2, application: {arguments: [y], environment: {C: "3"}}, input_files: []}
  - {processors: 3, application: {script: "echo"}, input_files: [{name: g, mode: chunk}]}
""",
        "job.yaml",
    )
    first, second, third = request.components
    assert first.application.arguments == ("x",)
    assert second.application == Application(
        executable="/bin/a", arguments=("y",), directory="d", environment=(("C", "3"),)
    )
    assert second.input_files == ()
    assert third.application == Application(script="echo", directory="d", environment=(("A", "1"), ("B", "2")))
    assert third.input_files == (InputFile(name="g", mode=InputMode.CHUNK),)


def test_an_executable_of_a_component_replaces_the_script_of_the_job() -> None:
    text = "application: {script: x}\ncomponents: [{processors: 1, application: {executable: /bin/a}}]"
    assert read_job(text, "job.yaml").components[0].application == Application(executable="/bin/a")


def test_words_that_old_yaml_changes_stay_text_where_text_is_wanted() -> None:
    request = read_job(
        "processors: 1\napplication: {executable: /bin/a, arguments: [no, on, 1:30, 007, 1e3, 0x10, 1.50, true]}",
        "job.yaml",
    )
    assert request.components[0].application.arguments == ("no", "on", "1:30", "007", "1e3", "0x10", "1.50", "true")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("900", 900.0),
        ("0.5", 0.5),
        ("15m", 900.0),
        ("15min", 900.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
        ("0.1m", 6.0),
        ("01:02:03", 3723.0),
        ("100:00:00", 360000.0),
        ("1:30", None),
        ("15 m", None),
        ("1:60:00", None),
        ("", None),
        ("-5m", None),
        ("15x", None),
    ],
)
def test_durations_are_seconds_or_have_units(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("written", ["15m", "900", '"900"', "00:15:00", '"00:15:00"', "900.0"])
def test_a_walltime_may_be_written_in_each_form(written: str) -> None:
    assert read_job(f"processors: 1\nwalltime: {written}", "job.yaml").walltime_s == 900.0


def test_anchors_and_aliases_share_what_they_name() -> None:
    text = (
        "components:\n  - {processors: 2, application: &a {executable: /bin/a}}\n  - {processors: 3, application: *a}"
    )
    first, second = read_job(text, "job.yaml").components
    assert first.application == second.application == Application(executable="/bin/a")


def test_all_problems_of_a_document_are_reported_in_its_order() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("processors: -1\npriority: urgent\nwalltime: soon\nnmae: x\n", "job.yaml")
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [
        (1, 13),
        (2, 11),
        (3, 11),
        (4, 1),
    ]
    assert (caught.value.line, caught.value.column) == (1, 13)


def test_a_report_shows_the_line_and_points_at_the_column() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("processors: 8\nnmae: x\n", "job.yaml")
    assert caught.value.for_user().split("\n")[:3] == [
        "job.yaml:2:1: 'nmae' is not a key that is known here",
        "  nmae: x",
        "  ^",
    ]
    assert "did you mean 'name'?" in caught.value.advice


def test_the_format_is_told_by_the_name_or_the_first_character() -> None:
    eight = Request(components=(Component(processors=8),))
    assert read_job("processors: 8", "job") == eight
    assert read_job("  &(count=8)", "job") == eight
    assert read_job("(count=8)", "-") == eight
    assert read_job("\ufeffprocessors: 8", "JOB.YAML") == eight
    script = read_job("#!/bin/sh\n#SBATCH -n 8\n", "-")
    assert script.components[0].processors == 8
    assert script.components[0].application.script == "#!/bin/sh\n#SBATCH -n 8\n"
    with pytest.raises(DescriptionError, match="batch script starts with"):
        read_job("processors: 8", "job.sh")


def test_a_short_request_is_written_short() -> None:
    request = Request(components=(Component(processors=8),), name="x", priority=Priority.HIGH)
    assert write_job_yaml(request) == "name: x\npriority: high\nprocessors: 8\n"


def test_a_script_is_written_as_a_block_of_lines() -> None:
    request = Request(
        components=(Component(processors=1, application=Application(script="#!/bin/sh\n  x: 'y'\n\n")),)
    )
    text = write_job_yaml(request)
    assert "  script: |+\n    #!/bin/sh\n      x: 'y'\n" in text
    assert read_job(text, "job.yaml") == request


def test_long_texts_are_read_as_they_were_written() -> None:
    words = " ".join(["word"] * 100) + '  "two"  \\ spaces\u2028'
    request = Request(
        components=(Component(processors=1, application=Application(executable="x", arguments=(words,))),)
    )
    assert read_job(write_job_yaml(request), "job.yaml") == request
    assert read_job(write_rsl(request), "job.rsl") == request


def test_processors_that_are_not_whole_tasks_are_refused_where_the_tasks_are_written() -> None:
    text = "name: x\nprocessors: 9\napplication: {executable: /bin/a, processors_per_task: 2}\n"
    with pytest.raises(DescriptionError, match="9 processors do not make whole tasks of 2") as refused:
        read_job(text, "job.yaml")
    assert refused.value.line == 3


@pytest.mark.parametrize("count", [0, 10_000_001])
def test_processors_per_task_have_limits(count: int) -> None:
    with pytest.raises(InvalidRequestError, match="processors_per_task"):
        Application(executable="/bin/a", processors_per_task=count)


# ------------------------------------------------------------------------------ what a job waits for


def test_what_a_job_waits_for_is_read_and_written() -> None:
    text = """
processors: 1
after: {done: [17, 18], started: [3]}
begin_at: 2030-01-31T08:00:30+01:00
hold: true
"""
    request = read_job(text, "job.yaml")
    assert [(each.job, str(each.condition)) for each in request.after] == [(17, "done"), (18, "done"), (3, "started")]
    assert (request.begin_at, request.begin_in_s, request.hold) == (1_896_073_230.0, None, True)
    assert read_job(write_job_yaml(request), "again.yaml") == request


@pytest.mark.parametrize(
    ("text", "at", "in_s"),
    [
        ("now+90m", None, 5_400.0),
        ("now", None, 0.0),
        ("1970-01-01T00:00Z", 0.0, None),
        ("2000-02-29T12:00:00.5Z", 951_825_600.5, None),
        ("9999-12-31T23:59:59Z", 253_402_300_799.0, None),
        ("12.5", 12.5, None),
    ],
)
def test_a_time_is_read(text: str, at: float | None, in_s: float | None) -> None:
    request = read_job(f"processors: 1\nbegin_at: {text}\n", "job.yaml")
    assert (request.begin_at, request.begin_in_s) == (at, in_s)
    assert read_job(write_job_yaml(request), "again.yaml") == request


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "2030-01-31T08:00", "2030-02-30T08:00Z", "2030-01-31", "-1", "now+", "now-1h", "1960-01-01T00:00Z"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(DescriptionError, match="not a time"):
        read_job(f"processors: 1\nbegin_at: {text}\n", "job.yaml")


def test_a_key_that_belongs_one_level_deeper_says_where() -> None:
    text = "components:\n  - processors: 2\n    script: echo hello\n"
    with pytest.raises(DescriptionError) as caught:
        read_job(text, "job.yaml")
    assert "'script' is not a key that is known here" in str(caught.value)
    assert "it belongs into 'application': write application: {script: ...}" in str(caught.value)
