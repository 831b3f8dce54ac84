"""The solvers solve: against mathematics, and in parallel equal to the serial solution to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from koala.examples.applications.alternate import Alternate
from koala.examples.applications.decomposition import Block
from koala.examples.applications.errors import ApplicationError
from koala.examples.applications.heat import FLOW, Heat, start_values
from koala.examples.applications.laplace import COMPARED_ITERATIONS, Laplace, exact_values
from koala.examples.applications.poisson import ASKED_ITERATIONS, Poisson, sources
from koala.examples.applications.saving import FILE, SavedAndLeftError
from tests.support.application_runs import alone, run, told
from tests.support.mpi_crew import MpiCrew

# Not divisible by anything, so that blocks are unequal.
SIZE = 23
# A hundred iterations or so: a border that comes late or at the wrong place shows in the first of them.
SOLVERS = {
    "laplace": ("--tolerance", "4e-3"),
    "heat": ("--steps", "60"),
    "poisson": ("--tolerance", "1e-3"),
    "alternate": ("--steps", "40"),
}


# ------------------------------------------------------------------------------------------ mathematics


def test_laplace_comes_to_the_exact_solution() -> None:
    laplace = alone(Laplace, "--size", "20", "--tolerance", "1e-10")
    assert laplace.solve().converged
    solution = laplace.collect()
    assert solution is not None
    exact = exact_values(20, Block(0, 20, 0, 20))[1:-1, 1:-1]
    assert np.abs(solution - exact).max() < 1e-7
    assert laplace.residual() < 1e-9


def test_poisson_comes_to_the_solution_of_the_linear_system() -> None:
    size = 12
    poisson = alone(Poisson, "--size", str(size), "--tolerance", "1e-12")
    assert poisson.solve().converged
    solution = poisson.collect()
    assert solution is not None
    line = 2 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    system = np.kron(line, np.eye(size)) + np.kron(np.eye(size), line)
    wanted = np.linalg.solve(system, sources(size, Block(0, size, 0, size)).reshape(-1))
    assert np.abs(solution.reshape(-1) - wanted).max() < 1e-10
    # And that is near to the solution of the equation itself.
    assert np.abs(solution - start_values(size)[1:-1, 1:-1]).max() < 0.01


def test_heat_falls_as_a_wave_of_its_length_does() -> None:
    size, steps = 21, 200
    heat = alone(Heat, "--size", str(size), "--steps", str(steps))
    heat.solve()
    solution = heat.collect()
    assert solution is not None
    kept = 1 - 8 * FLOW * np.sin(np.pi / (2 * (size + 1))) ** 2
    assert np.allclose(solution, kept**steps * start_values(size)[1:-1, 1:-1], rtol=1e-10, atol=0)


def test_heat_by_alternating_directions_falls_as_a_wave_of_its_length_does() -> None:
    size, steps = 21, 200
    alternate = alone(Alternate, "--size", str(size), "--steps", str(steps))
    alternate.solve()
    solution = alternate.collect()
    assert solution is not None
    kept = (1 - 4 * FLOW * np.sin(np.pi / (2 * (size + 1))) ** 2) ** 2
    assert np.allclose(solution, kept**steps * start_values(size)[1:-1, 1:-1], rtol=1e-10, atol=0)


def test_rest_in_the_place_of_computing_changes_no_solution() -> None:
    solutions = []
    for work_ms in ("0", "0.1"):
        alternate = alone(Alternate, "--size", "9", "--steps", "3", "--work-ms", work_ms)
        alternate.solve()
        solution = alternate.collect()
        assert solution is not None
        solutions.append(solution)
    assert np.array_equal(solutions[0], solutions[1])


def test_by_alternating_directions_all_talk_to_all(crew: MpiCrew) -> None:
    """Two processes in each of two clusters: each sends two messages across for each of two turns of a step, and
    little else."""
    done = crew.told("alternate", "--size", "12", "--steps", "5", "--groups", "2,2", processes=4)
    assert done["messages_across"] >= 4 * 2 * 2 * 5
    assert done["bytes_across"] >= 4 * 2 * 2 * 5 * 9 * 8


def test_laplace_ends_at_the_first_average_change_in_20_iterations_below_the_tolerance() -> None:
    laplace = alone(Laplace, "--size", "16", "--tolerance", "1e-3")
    iterations = laplace.solve().iterations
    changes = [
        float(np.abs(laplace.serial(end) - laplace.serial(end - COMPARED_ITERATIONS)).mean())
        for end in range(COMPARED_ITERATIONS, iterations + 1, COMPARED_ITERATIONS)
    ]
    assert iterations % COMPARED_ITERATIONS == 0
    assert len(changes) > 2
    assert changes[-1] < 1e-3 <= min(changes[:-1])


def test_poisson_ends_when_no_point_changes_by_the_tolerance() -> None:
    poisson = alone(Poisson, "--size", "16", "--tolerance", "1e-3")
    iterations = poisson.solve().iterations
    assert iterations > ASKED_ITERATIONS

    def change(end: int) -> float:
        return float(np.abs(poisson.serial(end) - poisson.serial(end - 1)).max())

    assert change(iterations) < 1e-3 <= change(iterations - ASKED_ITERATIONS)


# ------------------------------------------------------------------------------------------- in parallel


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
@pytest.mark.parametrize("application", SOLVERS)
def test_a_parallel_solution_is_equal_to_the_serial_one(crew: MpiCrew, application: str, processes: int) -> None:
    done = crew.told(application, "--size", str(SIZE), *SOLVERS[application], "--verify", processes=processes)
    assert done["verified_difference"] == 0.0
    assert done["processes"] == processes
    assert done["converged"]


@pytest.mark.parametrize("application", SOLVERS)
def test_distance_and_unequal_clusters_change_no_solution(crew: MpiCrew, application: str) -> None:
    common = ("--size", str(SIZE), *SOLVERS[application])
    far = crew.told(
        application,
        *common,
        *("--groups", "3,1,2", "--verify", "--wan-latency-ms", "1", "--wan-bandwidth-mbit-s", "100"),
        processes=6,
    )
    near = crew.told(application, *common, processes=6)
    assert far["verified_difference"] == 0.0
    assert far["clusters"] == [3, 1, 2]
    assert far["iterations"] == near["iterations"]
    assert far["messages_across"] > near["messages_across"] == 0


@pytest.mark.parametrize("grid", ["1x6", "6x1", "3x2"])
def test_laplace_runs_on_any_grid_of_processes(crew: MpiCrew, grid: str) -> None:
    done = crew.told("laplace", "--size", "19", "--tolerance", "1e-3", "--grid", grid, "--verify", processes=6)
    assert done["pattern"] == grid.replace("x", " x ")
    assert done["verified_difference"] == 0.0


@pytest.mark.parametrize("application", SOLVERS)
def test_one_process_needs_no_mpiexec(application: str) -> None:
    done = told(application, "--size", "16", *SOLVERS[application], "--verify")
    assert (done["processes"], done["clusters"]) == (1, [1])
    assert done["verified_difference"] == 0.0


def test_messages_larger_than_any_buffer_arrive_whole(crew: MpiCrew) -> None:
    done = crew.told("heat", "--size", "700", "--steps", "3", "--verify", processes=3)
    assert done["verified_difference"] == 0.0


# -------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize("processes", [None, 3])
def test_a_solution_that_does_not_converge_in_time_is_a_failure(processes: int | None) -> None:
    done = run("laplace", "--size", "32", "--tolerance", "1e-9", "--iterations-max", "40", processes=processes)
    assert done.code == 1
    assert "40, not converged" in done.out


@pytest.mark.parametrize("application", ["laplace", "poisson"])
def test_without_a_tolerance_all_iterations_are_done(crew: MpiCrew, application: str) -> None:
    done = crew.told(application, "--size", "8", "--tolerance", "0", "--iterations-max", "1000", processes=1)
    assert (done["iterations"], done["converged"]) == (1000, True)


def test_a_wrong_solution_is_told_and_is_a_failure(crew: MpiCrew) -> None:
    program = (
        "import sys\n"
        "from koala.examples.applications.heat import Heat\n"
        "from koala.examples.applications.program import run\n"
        "class Wrong(Heat):\n"
        "    def serial(self, iterations):\n"
        "        return super().serial(iterations + 1)\n"
        "sys.exit(run(Wrong, ['--size', '9', '--verify'], comm))\n"
    )
    done = crew.execute(program, processes=2)
    assert done.code == 1
    assert "NOT equal to the serial solution" in done.out


def test_the_result_is_a_few_readable_lines(crew: MpiCrew) -> None:
    options: dict[str, Any] = {"processes": 4, "environment": {"KOALA_PROCESSORS_ALL": "1,3"}}
    lines = crew.run(
        "laplace", "--size", "24", "--tolerance", "1e-2", "--verify", "--wan-latency-ms", "0.5", **options
    ).out.splitlines()
    assert lines[0] == "laplace, 24 x 24 points"
    rows = {line[2:34].rstrip(): line[34:].strip() for line in lines[1:]}
    assert rows["processes"] == "4, 2 x 2"
    assert rows["clusters"] == "2, with 1 + 3 processes"
    assert rows["wide area"] == "emulated: 0.5 ms, any bandwidth"
    assert rows["verified"] == "equal to the serial solution"
    assert {"iterations", "residual", "sent across", "seconds", "  computing"} <= rows.keys()
    assert {"  communicating inside clusters", "  communicating across clusters"} <= rows.keys()


# ------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("processes", [1, 4, 5])
def test_laplace_goes_on_in_another_division_and_comes_to_the_same_answer_to_the_last_bit(
    crew: MpiCrew, tmp_path: Path, processes: int
) -> None:
    common = ("--size", str(SIZE), *SOLVERS["laplace"], "--verify")
    whole = crew.told("laplace", *common, processes=6)
    saving = (*common, "--checkpoint", str(tmp_path))
    cut = crew.run("laplace", *saving, "--iterations-max", "60", "--checkpoint-every", "40", processes=6)
    assert cut.code == 1, "it had not converged"
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "nothing that is half written"
    done = crew.told("laplace", *saving, processes=processes)
    assert done["verified_difference"] == 0.0
    assert (done["iterations"], done["residual"]) == (whole["iterations"], whole["residual"])


def test_laplace_saves_and_leaves_when_it_is_asked_for_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOALA_CHECKPOINT", str(tmp_path / "ckpt"))
    monkeypatch.setenv("KOALA_CHECKPOINT_ASKED", str(tmp_path / "asked"))
    asked = alone(Laplace, "--size", "16", "--tolerance", "1e-6")
    (tmp_path / "asked").write_text("1 last")
    with pytest.raises(SavedAndLeftError, match="saved after 20 iterations"):
        asked.solve()
    again = alone(Laplace, "--size", "16", "--tolerance", "1e-6")
    (tmp_path / "asked").unlink()
    whole = alone(Laplace, "--size", "16", "--tolerance", "1e-6", "--checkpoint", str(tmp_path / "other"))
    assert again.solve() == whole.solve()
    assert again.residual() == whole.residual()


def test_a_checkpoint_of_another_size_or_a_damaged_one_is_not_used(tmp_path: Path) -> None:
    options = ("--tolerance", "1e-3", "--checkpoint", str(tmp_path))
    alone(Laplace, "--size", "12", *options, "--checkpoint-every", "20").solve()
    assert alone(Laplace, "--size", "16", *options).solve() == alone(Laplace, "--size", "16", *options[:2]).solve()
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:700])
    assert alone(Laplace, "--size", "12", *options).solve() == alone(Laplace, "--size", "12", *options[:2]).solve()


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file in the place of the directory")
    options = ("--size", "16", "--tolerance", "1e-3", "--checkpoint", str(tmp_path / "taken"))
    with pytest.raises(ApplicationError, match="cannot be written"):
        alone(Laplace, *options, "--checkpoint-every", "20").solve()
