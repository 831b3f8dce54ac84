"""Units are computed once, on many cores, and kept: whatever interrupts a run, it goes on where it was."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from koala.study.frame.experiment import FinishedUnit, Unit
from koala.study.frame.run import TooManyUnitsError, UnitError, processes_for, run_units
from tests.support.frame_samples import Sample, marked_units, times_computed


def values(results: list[FinishedUnit]) -> list[float]:
    return [finished.result["value"] for finished in results]


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "units").glob("*.json"))


def test_results_come_in_the_order_of_the_units_from_any_number_of_processes(tmp_path: Path) -> None:
    units = marked_units(tmp_path / "marks", 5)
    alone = run_units(Sample(), units, tmp_path / "alone", processes=1)
    together = run_units(Sample(), units, tmp_path / "together", processes=3)
    assert values(alone) == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert together == alone
    assert [path.read_bytes() for path in kept(tmp_path / "alone")] == [
        path.read_bytes() for path in kept(tmp_path / "together")
    ]


def test_a_result_is_the_same_whether_computed_or_kept(tmp_path: Path) -> None:
    units = marked_units(tmp_path / "marks", 2)
    first = run_units(Sample(), units, tmp_path, processes=1)
    assert first[0].result["by"] == {"1": [2, 3]}
    assert run_units(Sample(), units, tmp_path, processes=1) == first
    assert times_computed(tmp_path / "marks") == {1: 1, 2: 1}


def test_fresh_computes_everything_again(tmp_path: Path) -> None:
    units = marked_units(tmp_path / "marks", 2)
    run_units(Sample(), units, tmp_path, processes=1)
    run_units(Sample(), units, tmp_path, processes=1, fresh=True)
    assert times_computed(tmp_path / "marks") == {1: 2, 2: 2}


def test_other_work_is_not_taken_from_what_is_kept(tmp_path: Path) -> None:
    first = Unit(label="same label", work={"seed": 1, "factor": 2.0})
    other = Unit(label="same label", work={"seed": 1, "factor": 3.0})
    assert values(run_units(Sample(), [first], tmp_path, processes=1)) == [2.0]
    assert values(run_units(Sample(), [other], tmp_path, processes=1)) == [3.0]
    assert first.identity("sample") != first.identity("another")


@pytest.mark.parametrize("damage", [b"", b'{"work": {}, "resu', b'{"work": {}, "result": {"value": 0}}', b"[]"])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: bytes) -> None:
    units = marked_units(tmp_path / "marks", 1)
    run_units(Sample(), units, tmp_path, processes=1)
    kept(tmp_path)[0].write_bytes(damage)
    assert values(run_units(Sample(), units, tmp_path, processes=1)) == [2.0]
    assert times_computed(tmp_path / "marks") == {1: 2}


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_unit_and_the_finished_ones_are_kept(tmp_path: Path, processes: int) -> None:
    units = marked_units(tmp_path / "marks", 3, u3="fail")
    with pytest.raises(UnitError) as caught:
        run_units(Sample(), units, tmp_path, processes=processes)
    message = caught.value.for_user()
    assert "sample, number 3: RuntimeError: the dice fell off the table" in message
    assert "the same command goes on" in message
    if processes == 1:
        assert len(kept(tmp_path)) == 2


def test_an_error_with_words_for_the_user_is_shown_in_those(tmp_path: Path) -> None:
    with pytest.raises(UnitError, match=r"sample, number 1: use other dice"):
        run_units(Sample(), marked_units(tmp_path / "marks", 1, u1="advise"), tmp_path, processes=1)


def test_a_worker_that_is_killed_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    units = marked_units(tmp_path / "marks", 2, u1="die")
    with pytest.raises(UnitError, match="was killed"):
        run_units(Sample(), units, tmp_path, processes=2)


def test_a_failed_run_ends_its_own_processes_and_no_others(tmp_path: Path) -> None:
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600.0,))
    other.start()
    try:
        with pytest.raises(UnitError):
            run_units(Sample(), marked_units(tmp_path / "marks", 2, u1="fail"), tmp_path, processes=2)
        other.join(0.5)  # nothing is to happen, so there is no sign of it to wait for
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    units = marked_units(marks, 4)
    interrupting = [*units[:2], *marked_units(marks, 3, u3="interrupt")[2:], units[3]]
    with pytest.raises(KeyboardInterrupt):
        run_units(Sample(), interrupting, tmp_path, processes=1)
    told: list[tuple[int, int]] = []
    results = run_units(
        Sample(), units, tmp_path, processes=1, progress=lambda finished, of: told.append((finished, of))
    )
    assert values(results) == [2.0, 4.0, 6.0, 8.0]
    assert times_computed(marks) == {1: 1, 2: 1, 3: 2, 4: 1}
    assert told == [(2, 4), (3, 4), (4, 4)]


def test_what_was_written_when_an_interrupt_came_is_told_as_kept(tmp_path: Path) -> None:
    told: list[int] = []
    interrupts: list[int] = []

    def progress(finished: int, _: int) -> None:
        if finished == 2 and not interrupts:
            interrupts.append(finished)  # it comes before anybody hears of the second one
            raise KeyboardInterrupt
        told.append(finished)

    with pytest.raises(KeyboardInterrupt):
        run_units(Sample(), marked_units(tmp_path / "marks", 4), tmp_path, processes=1, progress=progress)
    assert told == [0, 1, 2]
    assert len(kept(tmp_path)) == 2


def test_more_units_than_a_run_may_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TooManyUnitsError, match="3 units are more than the 2"):
        run_units(Sample(), marked_units(tmp_path / "marks", 3), tmp_path, units_max=2)
    assert times_computed(tmp_path / "marks") == {}


def test_no_more_processes_than_work_or_than_an_experiment_allows() -> None:
    class Narrow(Sample):
        processes_max = 1

    assert processes_for(Sample(), 8, 3) == 3
    assert processes_for(Sample(), 2, 30) == 2
    assert processes_for(Sample(), 8, 0) == 1
    assert processes_for(Narrow(), 8, 3) == 1
