"""The JSON schemas say by which draft to read them, what they describe, and what the readers demand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from koala.descriptions import grid_schema, job_schema
from koala.descriptions.fields import duration_s
from koala.descriptions.mapping.application import graph_schema
from koala.descriptions.mapping.grid import dendrogram_schema
from koala.descriptions.workload.form import workload_schema

Schema = Callable[[], dict[str, Any]]


@pytest.mark.parametrize(
    ("schema_of", "title"),
    [
        (job_schema, "Koala job"),
        (grid_schema, "Koala grid"),
        (workload_schema, "Koala workload"),
        (graph_schema, "Koala task graph"),
        (dendrogram_schema, "Koala dendrogram"),
    ],
    ids=["job", "grid", "workload", "graph", "dendrogram"],
)
def test_a_schema_names_its_draft_and_what_it_describes(schema_of: Schema, title: str) -> None:
    schema = schema_of()
    assert next(iter(schema)) == "$schema"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == title


@pytest.mark.parametrize(
    "schema_of", [job_schema, lambda: workload_schema()["$defs"]["JobText"]], ids=["job", "workload"]
)
def test_a_job_gives_one_of_components_flexible_processors_and_tasks(schema_of: Schema) -> None:
    schema = schema_of()
    given = [branch["required"] for branch in schema["oneOf"]]
    assert given == [["components"], ["flexible"], ["processors"], ["tasks"], ["task"]]
    assert schema["oneOf"][-1]["properties"]["task"] == {"required": ["count"]}
    for branch in schema["oneOf"][:-1]:
        (key,) = branch["required"]
        assert key in schema["properties"]
        assert branch["properties"] == {key: {"not": {"type": "null"}}}


@pytest.mark.parametrize(
    "text", ["900", "0.5", "15m", "1h30m", "2.5d", " 90s ", "12:00:00", "1:30", "soon", "15 m", ""]
)
def test_the_pattern_of_a_walltime_matches_what_is_read_as_one(text: str) -> None:
    forms = job_schema()["properties"]["walltime"]["anyOf"]
    (pattern,) = (form["pattern"] for form in forms if form.get("type") == "string")
    assert bool(re.search(pattern, text)) == (duration_s(text) is not None)
