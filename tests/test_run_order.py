"""How the processes of a test run share the files: which begin first, and which go together."""

from __future__ import annotations

from tests.conftest import END_TO_END, LONG, OWN_CLUSTER, SECOND_LAB, begins, shared_by
from tests.support.paths import ROOT


def test_every_file_that_is_named_for_its_length_or_its_lab_is_there() -> None:
    assert [file for file in LONG if not (ROOT / file).exists()] == []
    assert [name for name in (*OWN_CLUSTER, *SECOND_LAB) if not (ROOT / END_TO_END / name).exists()] == []


def test_clusters_begin_first_then_long_files_then_the_others_by_name() -> None:
    files = ["tests/core/test_b.py", "tests/store/test_a.py", LONG[1], LONG[0], f"{END_TO_END}test_ssh.py"]
    assert sorted(files, key=begins) == [f"{END_TO_END}test_ssh.py", *LONG[:2], files[1], files[0]]


def test_files_go_alone_but_for_those_that_share_a_lab_or_a_crew() -> None:
    assert shared_by("tests/core/test_a.py") == "tests/core/test_a.py"
    assert shared_by(f"{END_TO_END}test_kills.py") == shared_by(f"{END_TO_END}test_trouble.py")
    assert shared_by(f"{END_TO_END}test_kills.py") != shared_by(f"{END_TO_END}test_ssh.py")
    assert shared_by("tests/examples/test_distance.py") == shared_by("tests/examples/test_decomposition.py")
