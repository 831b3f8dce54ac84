"""Every limit on a description is reached by a text that is refused with the limit's name."""

from __future__ import annotations

import pytest

from koala.descriptions import DescriptionError, read_grid, read_job
from koala.descriptions.errors import ERRORS_MAX, TEXT_BYTES_MAX
from koala.descriptions.fields import DURATION_S_MAX, NAME_CHARACTERS_MAX, SIZE_BYTES_MAX
from koala.descriptions.grid.simulation import OUTAGES_MAX
from koala.descriptions.rsl.syntax import RSL_DEPTH_MAX, RSL_TOKENS_MAX
from koala.descriptions.yaml.text import DEPTH_MAX, NODES_MAX
from koala.model.grid import NETWORK_GROUPS_MAX, NETWORK_LINKS_MAX, ROUTES_MAX, SITES_MAX
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    COMPONENTS_MAX,
    CUBE_DIMENSIONS_MAX,
    INPUT_FILES_MAX,
    SPLITS_MAX,
    TEXT_CHARACTERS_MAX,
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
    yaml = "processors: 1\nname: {}"
    assert len(read_job(yaml.format("x" * TEXT_CHARACTERS_MAX), "job.yaml").name) == TEXT_CHARACTERS_MAX
    assert "too long" in message(yaml.format("x" * (TEXT_CHARACTERS_MAX + 1)), "job.yaml")
    rsl = "&(koalaName={})"
    assert len(read_job(rsl.format("x" * TEXT_CHARACTERS_MAX), "job.rsl").name) == TEXT_CHARACTERS_MAX
    assert "TEXT_CHARACTERS_MAX" in message(rsl.format("x" * (TEXT_CHARACTERS_MAX + 1)), "job.rsl")


def test_a_name_of_the_greatest_length_is_read_and_a_longer_one_is_not() -> None:
    longest = "x" * NAME_CHARACTERS_MAX
    assert read_job(f"processors: 1\npolicy: {longest}", "job.yaml").policy == longest
    assert "too long" in message(f"processors: 1\npolicy: {longest}x", "job.yaml")
    assert "not a name" in message(f"&(koalaPolicy={longest}x)", "job.rsl")


def test_a_job_has_at_most_so_many_components() -> None:
    assert len(read_job(f"components: [{{processors: 1, count: {COMPONENTS_MAX}}}]", "job.yaml").components) == 1000
    assert "too large" in message(f"components: [{{processors: 1, count: {COMPONENTS_MAX + 1}}}]", "job.yaml")
    assert "COMPONENTS_MAX" in message("+" + "(&(count=1))" * (COMPONENTS_MAX + 1), "job.rsl")
    assert "COMPONENTS_MAX" in message("#!/bin/sh\n" + "#SBATCH hetjob\n" * COMPONENTS_MAX, "job.sbatch")


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
