"""Every limit on a description is reached by a text that is refused with the limit's name."""

from __future__ import annotations

import msgspec
import pytest

from koala.descriptions import DescriptionError, read_grid, read_job
from koala.descriptions.errors import ERRORS_MAX, TEXT_BYTES_MAX
from koala.descriptions.fields import DURATION_S_MAX, NAME_CHARACTERS_MAX, SIZE_BYTES_MAX
from koala.descriptions.grid.simulation import OUTAGES_MAX
from koala.descriptions.rsl.syntax import RSL_DEPTH_MAX, RSL_TOKENS_MAX
from koala.descriptions.yaml.nodes import DEPTH_MAX, EXPANDED_CHARACTERS_MAX, NODES_MAX, TAG_DIRECTIVES_MAX
from koala.model.grid import NETWORK_GROUPS_MAX, NETWORK_LINKS_MAX, ROUTES_MAX, SITES_MAX
from koala.model.nodes import TaskNeeds
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    COMPONENTS_MAX,
    CUBE_DIMENSIONS_MAX,
    INPUT_FILES_MAX,
    PROCESSORS_MAX,
    SPLITS_MAX,
    TEXT_CHARACTERS_MAX,
    Component,
    Request,
)
from koala.model.request_size import (
    ARGUMENTS_MAX,
    COMPONENT_CHARACTERS,
    FILE_NAME_CHARACTERS_MAX,
    JOB_ENTRIES_MAX,
    JOB_INPUT_FILES_MAX,
    JOB_NAME_CHARACTERS_MAX,
    JOB_SHAPES_MAX,
    RESTARTS_MAX,
    SPLIT_PARTS_MAX,
    TRIES_MAX,
    VARIABLES_MAX,
    RequestSizeError,
    check_size,
    request_characters,
)


def message(text: str, source: str) -> str:
    """The first problem of a job that is refused."""
    with pytest.raises(DescriptionError) as caught:
        read_job(text, source)
    return caught.value.message


@pytest.mark.parametrize("source", ["job.yaml", "job.rsl", "job.sbatch"])
def test_a_text_of_the_largest_size_is_read_and_one_byte_more_is_not(source: str) -> None:
    start = {"job.yaml": "processors: 1\n#", "job.rsl": "&(count=1)(*", "job.sbatch": "#!/bin/sh\n#SBATCH -n 1\n#"}[
        source
    ]
    end = "*)" if source == "job.rsl" else ""
    full = start + "x" * (TEXT_BYTES_MAX - len(start) - len(end)) + end
    assert "TEXT_BYTES_MAX" in message(full + " ", source)
    if source == "job.sbatch":
        # The script travels with the job, which has a smaller limit of its own.
        assert "TEXT_CHARACTERS_MAX" in message(full, source)
        assert read_job(full[:TEXT_CHARACTERS_MAX], source).processors == 1
    else:
        assert read_job(full, source).processors == 1


def test_the_size_of_a_text_is_counted_in_bytes() -> None:
    assert "TEXT_BYTES_MAX" in message("#" + "é" * (TEXT_BYTES_MAX // 2), "job.yaml")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_yaml_that_nests_too_deep_is_refused(opening: str, closing: str) -> None:
    assert "DEPTH_MAX" not in message(opening * DEPTH_MAX + closing * DEPTH_MAX, "job.yaml")
    assert "DEPTH_MAX" in message(opening * (DEPTH_MAX + 1) + closing * (DEPTH_MAX + 1), "job.yaml")
    assert "DEPTH_MAX" in message(opening * 100_000, "job.yaml")


def test_an_alias_counts_as_deep_as_what_it_stands_for() -> None:
    half = "[" * (DEPTH_MAX // 2) + "]" * (DEPTH_MAX // 2)
    outer = "[" * (DEPTH_MAX // 2) + "*a" + "]" * (DEPTH_MAX // 2)
    assert "DEPTH_MAX" in message(f"a: &a {half}\nb: {outer}", "job.yaml")


def test_yaml_with_too_many_values_is_refused() -> None:
    assert "NODES_MAX" in message("a: [" + "1," * NODES_MAX + "]", "job.yaml")
    assert "NODES_MAX" not in message("a: [" + "1," * (NODES_MAX - 3) + "]", "job.yaml")


def test_aliases_that_multiply_are_refused_before_they_are_expanded() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "NODES_MAX" in message("\n".join(levels), "job.yaml")


def test_rsl_that_nests_too_deep_is_refused() -> None:
    assert "RSL_DEPTH_MAX" in message("&" + "(&" * (RSL_DEPTH_MAX + 1), "job.rsl")
    inner = RSL_DEPTH_MAX - 1
    assert read_job("&" + "(&" * inner + "(count=3)" + ")" * inner, "job.rsl").processors == 3
    assert "RSL_DEPTH_MAX" in message("(" * 100_000, "job.rsl")


def test_rsl_with_too_many_words_is_refused() -> None:
    assert "RSL_TOKENS_MAX" in message("&(arguments=" + "a " * RSL_TOKENS_MAX + ")", "job.rsl")


def test_rsl_variables_that_multiply_are_refused() -> None:
    definitions = "(A0 " + "x" * 60_000 + ")"
    text = f"&(rsl_substitution={definitions})(arguments={'$(A0) ' * 100})"
    assert "RSL_SUBSTITUTED_CHARACTERS_MAX" in message(text, "job.rsl")
    doubling = "(A0 xxxxxxxxxx)" + "".join(f"(A{n} $(A{n - 1})$(A{n - 1}))" for n in range(1, 40))
    assert "TEXT_CHARACTERS_MAX" in message(f"&(rsl_substitution={doubling})", "job.rsl")


def test_a_text_of_the_greatest_length_is_read_and_a_longer_one_is_not() -> None:
    yaml = "processors: 1\napplication: {{directory: {}}}"
    directory = read_job(yaml.format("x" * TEXT_CHARACTERS_MAX), "job.yaml").components[0].application.directory
    assert directory == "x" * TEXT_CHARACTERS_MAX
    assert "too long" in message(yaml.format("x" * (TEXT_CHARACTERS_MAX + 1)), "job.yaml")
    rsl = "&(directory={})"
    directory = read_job(rsl.format("x" * TEXT_CHARACTERS_MAX), "job.rsl").components[0].application.directory
    assert directory == "x" * TEXT_CHARACTERS_MAX
    assert "TEXT_CHARACTERS_MAX" in message(rsl.format("x" * (TEXT_CHARACTERS_MAX + 1)), "job.rsl")


def test_a_name_of_the_greatest_length_is_read_and_a_longer_one_is_not() -> None:
    longest = "x" * NAME_CHARACTERS_MAX
    assert read_job(f"processors: 1\npolicy: {longest}", "job.yaml").policy == longest
    assert "too long" in message(f"processors: 1\npolicy: {longest}x", "job.yaml")
    assert "not a name" in message(f"&(koalaPolicy={longest}x)", "job.rsl")


def in_every_format(yaml: str, rsl: str, option: str) -> list[str]:
    """What is wrong with a job whose YAML, RSL attributes and option of a script say too much."""
    return [
        message(f"processors: 1\n{yaml}", "job.yaml"),
        message(f"&(count=1){rsl}", "job.rsl"),
        message(f"#!/bin/sh\n#SBATCH -n 1\n{option}\n", "job.sbatch"),
    ]


def test_numbers_of_a_job_have_bounds_in_every_format() -> None:
    for key, most, attribute in (
        ("restarts", RESTARTS_MAX, "koalaRestarts"),
        ("placement_tries", TRIES_MAX, "koalaPlacementTries"),
        ("claiming_tries", TRIES_MAX, "koalaClaimingTries"),
    ):
        option = key.replace("_", "-")
        assert getattr(read_job(f"&(count=1)({attribute}={most})", "job.rsl"), f"{key}_max") == most
        yaml, rsl, script = in_every_format(
            f"limits: {{{key}: {most + 1}}}", f"({attribute}={most + 1})", f"#KOALA --{option} {most + 1}"
        )
        assert "too large" in yaml
        limit = "RESTARTS_MAX" if key == "restarts" else "TRIES_MAX"
        assert limit in rsl
        assert limit in script
    assert "PROCESSORS_MAX" in message(f"components: [{{processors: {PROCESSORS_MAX}, count: 2}}]", "job.yaml")


def test_names_of_a_job_and_of_its_files_have_bounds_in_every_format() -> None:
    name = "x" * (JOB_NAME_CHARACTERS_MAX + 1)
    assert read_job(f"processors: 1\nname: {name[1:]}", "job.yaml").name == name[1:]
    yaml, rsl, script = in_every_format(f"name: {name}", f"(koalaName={name})", f"#SBATCH -J {name}")
    assert "too long" in yaml
    assert "JOB_NAME_CHARACTERS_MAX" in rsl
    assert "JOB_NAME_CHARACTERS_MAX" in script
    file = "x" * (FILE_NAME_CHARACTERS_MAX + 1)
    yaml, rsl, script = in_every_format(
        f"input_files: [{file}]", f"(fileStageIn=({file}))", f"#KOALA --input-file {file}"
    )
    assert "too long" in yaml
    assert "FILE_NAME_CHARACTERS_MAX" in rsl
    assert "FILE_NAME_CHARACTERS_MAX" in script


def test_lists_of_a_job_have_bounds() -> None:
    assert "too many entries" in message(
        f"processors: 1\napplication: {{arguments: [{'a, ' * (ARGUMENTS_MAX + 1)}]}}", "job.yaml"
    )
    assert "ARGUMENTS_MAX" in message(f"&(count=1)(arguments={'a ' * (ARGUMENTS_MAX + 1)})", "job.rsl")
    variables = [f"V{number}" for number in range(VARIABLES_MAX + 1)]
    yaml, rsl, script = in_every_format(
        f"application: {{environment: {{{', '.join(f'{name}: x' for name in variables)}}}}}",
        f"(environment={''.join(f'({name} x)' for name in variables)})",
        f"#SBATCH --export={','.join(f'{name}=x' for name in variables)}",
    )
    assert "too many entries" in yaml
    assert "VARIABLES_MAX" in rsl
    assert "VARIABLES_MAX" in script
    split = f"[{', '.join(['1'] * 100)}]"
    splits = ", ".join([split] * (SPLIT_PARTS_MAX // 100 + 1))
    assert "SPLIT_PARTS_MAX" in message(f"flexible: {{processors: 100, splits: [{splits}]}}", "job.yaml")


def test_what_all_components_have_together_has_bounds() -> None:
    files = ", ".join(f"f{number}" for number in range(INPUT_FILES_MAX))
    count = JOB_INPUT_FILES_MAX // INPUT_FILES_MAX
    shared = f"input_files: [{files}]\ncomponents: [{{{{processors: 1, count: {{}}}}}}]"
    assert read_job(shared.format(count), "job.yaml").processors == count
    assert "JOB_INPUT_FILES_MAX" in message(shared.format(count + 1), "job.yaml")
    arguments = "application: {{arguments: [{}]}}\ncomponents: [{{processors: 1, count: {}}}]"
    words = "a, " * 1_000
    assert read_job(arguments.format(words, JOB_ENTRIES_MAX // 1_000), "job.yaml").processors == 100
    assert "JOB_ENTRIES_MAX" in message(arguments.format(words, JOB_ENTRIES_MAX // 1_000 + 1), "job.yaml")


def test_a_text_that_is_aliased_counts_each_time_with_all_its_characters() -> None:
    text = "x" * 60_000
    fitting = EXPANDED_CHARACTERS_MAX // len(text) - 1
    yaml = "processors: 1\napplication:\n  executable: &a {}\n  arguments: [{}]"
    arguments = read_job(yaml.format(text, "*a, " * fitting), "job.yaml").components[0].application.arguments
    assert len(arguments) == fitting
    assert "EXPANDED_CHARACTERS_MAX" in message(yaml.format(text, "*a, " * (fitting + 1)), "job.yaml")
    nested = f"x: &a [{text}]\ny: &b [*a, *a, *a, *a, *a, *a]\nz: [*b, *b, *b, *b, *b, *b]"
    assert "EXPANDED_CHARACTERS_MAX" in message(nested, "job.yaml")


def test_a_job_counts_each_different_text_once_and_a_little_for_each_component() -> None:
    script = "#!/bin/sh\n" + "#SBATCH -n 1\n#SBATCH hetjob\n" * (COMPONENTS_MAX - 1) + "#SBATCH -n 1\n"
    request = read_job(script + "#" * (TEXT_CHARACTERS_MAX - len(script)), "job.sbatch")
    assert len(request.components) == COMPONENTS_MAX
    assert len({id(component.application) for component in request.components}) == 1
    size = request_characters(request)
    assert TEXT_CHARACTERS_MAX < size < TEXT_CHARACTERS_MAX + 2 * COMPONENT_CHARACTERS * COMPONENTS_MAX
    check_size(request, characters_max=size)
    with pytest.raises(RequestSizeError, match="REQUEST_CHARACTERS_MAX"):
        check_size(request, characters_max=size - 1)


def test_a_job_that_was_recorded_before_there_were_bounds_is_still_read() -> None:
    old = Request(components=(Component(processors=1),), restarts_max=10**8, name="x" * 60_000)
    assert msgspec.json.decode(msgspec.json.encode(old), type=Request) == old


def test_a_job_has_at_most_so_many_components() -> None:
    assert len(read_job(f"components: [{{processors: 1, count: {COMPONENTS_MAX}}}]", "job.yaml").components) == 1000
    assert "too large" in message(f"components: [{{processors: 1, count: {COMPONENTS_MAX + 1}}}]", "job.yaml")
    assert "COMPONENTS_MAX" in message("+" + "(&(count=1))" * (COMPONENTS_MAX + 1), "job.rsl")
    assert "COMPONENTS_MAX" in message(
        "#!/bin/sh\n" + "#SBATCH -n 1\n#SBATCH hetjob\n" * COMPONENTS_MAX + "#SBATCH -n 1\n", "job.sbatch"
    )


def test_a_component_has_at_most_so_many_files_and_a_job_so_many_splits() -> None:
    files = ", ".join(f"f{n}" for n in range(INPUT_FILES_MAX + 1))
    assert "too many entries" in message(f"processors: 1\ninput_files: [{files}]", "job.yaml")
    splits = ", ".join(["[1]"] * (SPLITS_MAX + 1))
    assert "too many entries" in message(f"flexible: {{processors: 1, splits: [{splits}]}}", "job.yaml")
    assert "SPLITS_MAX" in message(f"&(koalaFlexible=yes)(koalaSplits={'(1)' * (SPLITS_MAX + 1)})", "job.rsl")


def test_a_time_beyond_reason_is_refused_in_every_format() -> None:
    assert read_job(f"processors: 1\nwalltime: {DURATION_S_MAX:.0f}", "job.yaml").walltime_s == DURATION_S_MAX
    assert "1000000001 seconds are too long" in message(
        f"processors: 1\nwalltime: {DURATION_S_MAX + 1:.0f}", "job.yaml"
    )
    assert "too long" in message(f"&(koalaWalltimeSeconds={DURATION_S_MAX + 1:.0f})", "job.rsl")
    assert "too long" in message(f"#!/bin/sh\n#SBATCH -t {DURATION_S_MAX:.0f}"[:-1], "job.sbatch")


def test_a_grid_has_at_most_so_many_sites_outages_and_bytes_in_a_file() -> None:
    sites = ", ".join(f"s{n}: {{processors: 1}}" for n in range(SITES_MAX + 1))
    outages = ", ".join(["[1, 2]"] * (OUTAGES_MAX + 1))
    for text in (
        f"sites: {{{sites}}}",
        f"sites: {{a: {{processors: 1, simulation: {{faults: {{outages: [{outages}]}}}}}}}}",
    ):
        with pytest.raises(DescriptionError, match="too many entries"):
            read_grid(text, "grid.yaml")
    with pytest.raises(DescriptionError, match="too large"):
        read_grid(
            f"sites: {{a: {{processors: 1}}}}\nfiles: {{f: {{size_bytes: {SIZE_BYTES_MAX + 1}, replicas: [a]}}}}",
            "grid.yaml",
        )


@pytest.mark.parametrize(
    "network",
    [
        "groups: [" + ", ".join(f"{{name: g{n}, members: [a]}}" for n in range(NETWORK_GROUPS_MAX + 1)) + "]",
        "links: {" + ", ".join(f"l{n}: 1" for n in range(NETWORK_LINKS_MAX + 1)) + "}",
        "routes: [" + ", ".join(["{between: [a, b], over: [l]}"] * (ROUTES_MAX + 1)) + "]",
    ],
    ids=["groups", "links", "routes"],
)
def test_a_network_has_at_most_so_many_groups_links_and_routes(network: str) -> None:
    with pytest.raises(DescriptionError, match="too many entries"):
        read_grid(f"sites: {{a: {{processors: 1}}}}\nnetwork: {{{network}}}", "grid.yaml")


def test_bandwidths_and_dimensions_beyond_reason_are_refused_in_every_format() -> None:
    for mbit_s, dimensions in ((BANDWIDTH_MBIT_S_MAX, CUBE_DIMENSIONS_MAX + 1), (BANDWIDTH_MBIT_S_MAX + 1, 2)):
        yaml = f"processors: 2\ncommunication: {{bisection_mbit_s: {mbit_s}, dimensions: {dimensions}}}"
        assert "too large" in message(yaml, "job.yaml")
        rsl = f"&(count=2)(koalaBisectionMbit={mbit_s})(koalaDimensions={dimensions})"
        assert "is not a" in message(rsl, "job.rsl")
    with pytest.raises(DescriptionError, match="too large"):
        read_grid(f"sites: {{a: {{processors: 1, uplink_mbit_s: {BANDWIDTH_MBIT_S_MAX + 1}}}}}", "grid.yaml")


def test_only_so_many_problems_are_reported_and_the_rest_counted() -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job("processors: 1\n" + "".join(f"x{n}: 1\n" for n in range(ERRORS_MAX + 5)), "job.yaml")
    assert len(caught.value.problems) == ERRORS_MAX
    assert caught.value.for_user().endswith("and 5 more problems in job.yaml")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("&" + "(unheardOf=1)" * 1_000, "job.rsl"),
        ("#!/bin/sh\n" + "#SBATCH --unheard-of\n" * 1_000, "job.sbatch"),
        ("processors: 1\n" + "name: x\n" * 1_000, "job.yaml"),
        ("processors: 1\n" + "".join(f"k{number}: !tag x\n" for number in range(1_000)), "job.yaml"),
        (f"components: [{'{processors: 1, site: nowhere}, ' * 1_000}]", "job.yaml"),
        (f"mcr: 1\ntasks: {{a: 1}}\nedges: [{'[a, nowhere, 1], ' * 1_000}]", "job.yaml"),
    ],
    ids=["RSL", "sbatch", "twice", "tags", "sites", "tasks"],
)
def test_the_reading_stops_where_more_is_wrong_than_is_reported(text: str, source: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_job(text, source, known_sites=["west"])
    assert len(caught.value.problems) == ERRORS_MAX
    assert caught.value.for_user().endswith(f"and at least 1 more problem in {source}")


def test_only_so_many_tag_directives_are_handed_to_the_parser() -> None:
    directives = "#\n" + "".join(f"%TAG !t{number}! x\n" for number in range(TAG_DIRECTIVES_MAX + 1))
    assert "TAG_DIRECTIVES_MAX" in message(directives + "---\nprocessors: 1\n", "job.yaml")


def test_a_job_has_few_different_shapes_of_tasks() -> None:
    def of(shapes: int) -> Request:
        components = [Component(processors=1, needs=TaskNeeds(gpus=1 + each % shapes)) for each in range(100)]
        return Request(components=tuple(components))

    check_size(of(JOB_SHAPES_MAX))
    with pytest.raises(RequestSizeError, match=r"17 different shapes of tasks, more than 16 \(JOB_SHAPES_MAX\)"):
        check_size(of(JOB_SHAPES_MAX + 1))
