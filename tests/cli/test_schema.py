"""``koala schema`` prints a JSON schema that says what each field means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from koala.cli import koala


def schema_of(kind: str) -> dict[str, Any]:
    """The schema as the command prints it."""
    result = CliRunner().invoke(koala, ["schema", kind])
    assert result.exit_code == 0, result.output
    schema: dict[str, Any] = json.loads(result.stdout)
    return schema


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("job", {"name", "priority", "walltime", "components", "flexible", "processors", "application", "limits"}),
        ("grid", {"name", "sites", "links", "files", "scheduler", "simulation"}),
        ("workload", set()),
        ("study", {"study", "policies", "grids", "workloads", "traces", "seeds", "expectations"}),
        ("graph", {"mcr", "tasks", "edges", "clusters"}),
        ("dendrogram", {"user_lan", "wans"}),
    ],
)
def test_a_schema_is_an_object_that_allows_no_unknown_keys(kind: str, keys: set[str]) -> None:
    schema = schema_of(kind)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert keys <= set(schema["properties"])


@pytest.mark.parametrize("kind", ["job", "grid", "graph", "dendrogram"])
def test_every_field_of_a_schema_has_a_description(kind: str) -> None:
    schema = schema_of(kind)
    objects = [schema, *(part for part in schema["$defs"].values() if part["type"] == "object")]
    missing = [
        (part["title"], name)
        for part in objects
        for name, field in part["properties"].items()
        if "description" not in field
    ]
    assert missing == []


def test_values_with_several_forms_say_so_in_the_schema() -> None:
    schema = schema_of("job")
    walltime = {form.get("type") for form in schema["properties"]["walltime"]["anyOf"]}
    assert {"number", "string"} <= walltime
    assert {"type": "string"} in schema["properties"]["input_files"]["items"]["anyOf"]


def test_tasks_and_edges_have_a_short_form_and_a_long_one() -> None:
    schema = schema_of("graph")
    (task,) = (named["anyOf"] for named in schema["properties"]["tasks"]["patternProperties"].values())
    assert "number" in {form.get("type") for form in task}
    assert {"$ref": "#/$defs/TaskText"} in task
    edge = schema["properties"]["edges"]["items"]["anyOf"]
    assert {form.get("type") for form in edge} == {"array", None}


def test_an_unknown_kind_is_wrong_use() -> None:
    result = CliRunner().invoke(koala, ["schema", "cluster"])
    assert result.exit_code == 2
    assert "'job', 'grid', 'workload', 'study', 'graph', 'dendrogram'" in result.output
