"""A job is remembered, stored and told by the same names, so that a new field is written in few places."""

from __future__ import annotations

import re

import pytest

from koala.core.life.job import Job
from koala.core.standing import JobExplanation
from koala.daemon.engine.projection import COPIED_FIELDS
from koala.model.api import Explanation, JobDetail
from koala.model.facts import JobEnded
from koala.model.messages import JobCounts
from koala.store import StoredJob
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", JobCounts.__struct_fields__)
def test_what_is_counted_of_a_job_has_one_name_everywhere(name: str) -> None:
    assert hasattr(Job, name)
    assert name in JobEnded.__struct_fields__
    assert name in JobExplanation.__struct_fields__
    assert name in StoredJob.__struct_fields__
    assert name in COPIED_FIELDS
    assert name in JobDetail.__struct_fields__
    assert name in Explanation.__struct_fields__


def test_the_line_of_an_ended_job_closes_with_what_is_counted_in_the_order_in_which_it_is_given() -> None:
    counts = JobCounts.__struct_fields__
    assert JobEnded.__struct_fields__[-len(counts) :] == counts


def test_all_that_callers_are_told_of_a_job_is_on_record_or_worked_out_for_them() -> None:
    worked_out = {"place_in_line", "begins_at", "description", "components", "transfers", "files"}
    worked_out |= {"asked", "tasks", "walltime_s", "outputs", "traffic", "checkpoint", "standing", "usage"}
    assert set(JobDetail.__struct_fields__) - worked_out <= set(StoredJob.__struct_fields__)


def test_the_files_that_a_new_field_touches_are_at_most_five_and_exist() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## To add a field to a job")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(src/[^`]+)`", section, re.MULTILINE)
    assert 0 < len(named) <= 5
    assert all((ROOT / name).exists() for name in named)
