"""The policy files of a grid file's text, rewritten with paths that are valid wherever the text is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

KEY = "policy_files"


def with_policy_paths(text: str, paths: Sequence[str]) -> str:
    """Return the text of a valid grid with these paths as its policy files; everything else stays as it is."""
    grid = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(grid, yaml.MappingNode), "a grid is a mapping"
    entry = f"{KEY}: {json.dumps(list(paths))}"
    for key, value in grid.value:
        if key.value == KEY:
            # The end of a list in block style is the start of the next key, behind any comments.
            last = value if value.flow_style or not value.value else value.value[-1]
            return text[: key.start_mark.index] + entry + text[last.end_mark.index :]
    if not paths:
        return text
    begin = grid.start_mark.index
    if grid.flow_style:
        return f"{text[: begin + 1]}{entry}, {text[begin + 1 :]}"
    return f"{text[:begin]}{entry}\n{' ' * grid.start_mark.column}{text[begin:]}"
