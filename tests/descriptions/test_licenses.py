"""Floating licences in the descriptions of jobs and grids."""

from __future__ import annotations

import pytest

from koala.descriptions import read_grid, read_job
from koala.descriptions.errors import DescriptionError
from koala.descriptions.job.form import write_job_yaml
from koala.descriptions.rsl.writer import write_rsl
from koala.model.request import LICENSES_MAX, Component, InvalidRequestError, Licenses, Request

SITES = "sites: {A: {processors: 4, licenses: {ansys: 4, abaqus: 1}}, B: {processors: 4}}\n"


def script(*lines: str) -> Request:
    return read_job("\n".join(["#!/bin/sh", *lines, "true", ""]), "job.sh")


def test_a_job_says_which_licences_it_holds_in_whatever_order() -> None:
    request = read_job("processors: 4\nlicenses: {matlab: 1, ansys: 2}\n", "job.yaml")
    assert request.licenses == (("ansys", 2), ("matlab", 1))
    assert read_job(write_job_yaml(request), "again.yaml") == request


def test_a_grid_has_pools_of_its_sites_and_for_all_of_them() -> None:
    grid = read_grid(f"{SITES}licenses: {{ansys: 10}}\n", "grid.yaml")
    assert [site.licenses for site in grid.sites] == [(("abaqus", 1), ("ansys", 4)), ()]
    assert grid.licenses == (("ansys", 10),)


@pytest.mark.parametrize("option", ["--licenses=matlab,ansys:2", "-L matlab:1,ansys=2"])
def test_a_batch_script_says_it_in_slurms_words(option: str) -> None:
    assert script(f"#SBATCH -n 4 {option}").licenses == (("ansys", 2), ("matlab", 1))


def test_they_concern_the_whole_job() -> None:
    with pytest.raises(DescriptionError, match="--licenses concerns the whole job"):
        script("#SBATCH -n 4", "#SBATCH hetjob", "#SBATCH -n 2 -L ansys")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("ansys:0", "0 of ansys is no number of licences"),
        ("ansys:-1", "'ansys:-1' is no licence that can be asked for here"),
        ("ansys@server", "'ansys@server' is no licence"),
        ("ansys|matlab", "no licence"),
        ("ansys,ansys:2", "'ansys:2' is asked for twice"),
        ("ansys:1000001", "1000001 of ansys is no number"),
        (",".join(f"l{number}" for number in range(LICENSES_MAX + 1)), "LICENSES_MAX"),
    ],
)
def test_what_nobody_can_hold_is_refused_where_it_stands(value: str, why: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        script(f"#SBATCH -n 4 --licenses='{value}'")
    assert why in refused.value.for_user()
    assert "job.sh:2:" in refused.value.for_user()


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "many", "1000001"])
@pytest.mark.parametrize("where", ["job", "site", "grid"])
def test_so_it_is_in_a_job_and_in_a_grid_file(where: str, count: str) -> None:
    pool = f"licenses: {{ansys: {count}}}"
    texts = {"job": f"processors: 1\n{pool}\n", "grid": f"{SITES}{pool}\n"}
    texts["site"] = f"sites: {{A: {{processors: 4, {pool}}}}}\n"
    with pytest.raises(DescriptionError, match="ansys"):
        (read_job if where == "job" else read_grid)(texts[where], "it.yaml")


@pytest.mark.parametrize("licenses", [(("ansys", 0),), (("ansys", 1), ("ansys", 2))])
def test_a_request_that_is_made_in_code_is_checked_too(licenses: Licenses) -> None:
    with pytest.raises(InvalidRequestError, match="licen"):
        Request(components=(Component(processors=1),), licenses=licenses)


def test_rsl_has_no_words_for_them() -> None:
    with pytest.raises(InvalidRequestError, match="RSL has no words for licences"):
        write_rsl(Request(components=(Component(processors=1),), licenses=(("ansys", 1),)))
