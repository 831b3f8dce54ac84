"""The policy files of a grid file: their paths, how many there may be, and the text that keeps them."""

from __future__ import annotations

import pytest
import yaml

from koala.descriptions import DescriptionError, read_grid
from koala.descriptions.grid.policy_paths import with_policy_paths
from koala.model.grid import POLICY_FILES_MAX, PolicyFile

SITES = "sites: {a: {processors: 4}}"
PATHS = ["/op/one.py", '/op/it\'s "two": #.py']


@pytest.mark.parametrize(
    "text",
    [
        f"{SITES}\n",
        f"# a comment\n---\n{SITES}\nname: x\n",
        f"policy_files: [a.py]\n{SITES}\n",
        f"{SITES}\npolicy_files:\n  - a.py\n  - b.py   # why\n\n# behind\nname: x\n",
        f"{SITES}\npolicy_files:\n- a.py",
        f"name: x\n{SITES}\npolicy_files: []\nscheduler: {{policy: CM}}\n",
        f"{{{SITES}}}\n",
        f"{{policy_files: [a.py], {SITES}}}\n",
        f"  {SITES}\n  name: x\n",
    ],
)
def test_paths_are_put_into_the_text_and_all_else_stays(text: str) -> None:
    made = with_policy_paths(text, PATHS)
    before, after = yaml.safe_load(text), yaml.safe_load(made)
    assert after.pop("policy_files") == PATHS
    before.pop("policy_files", None)
    assert after == before
    for comment in ("# a comment", "# behind"):
        assert (comment in made) == (comment in text)
    assert with_policy_paths(made, PATHS) == made


def test_a_grid_without_policy_files_is_kept_as_it_is() -> None:
    assert with_policy_paths(f"{SITES} # x\n", []) == f"{SITES} # x\n"


def test_paths_are_from_the_folder_of_the_grid_file() -> None:
    grid = read_grid(f"{SITES}\npolicy_files: [own.py, sub/two.py, /op/three.py]\n", "/grids/mine.yaml")
    assert grid.policy_files == tuple(
        PolicyFile(path=path) for path in ("/grids/own.py", "/grids/sub/two.py", "/op/three.py")
    )
    assert read_grid(f"{SITES}\npolicy_files: [own.py]\n", "mine.yaml").policy_files[0].path == "own.py"


def test_a_grid_names_so_many_policy_files_at_most() -> None:
    names = [f"p{number}.py" for number in range(POLICY_FILES_MAX)]
    assert len(read_grid(f"{SITES}\npolicy_files: {names}\n", "mine.yaml").policy_files) == POLICY_FILES_MAX
    with pytest.raises(DescriptionError, match="policy_files"):
        read_grid(f"{SITES}\npolicy_files: {[*names, 'more.py']}\n", "mine.yaml")
