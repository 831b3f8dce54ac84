"""A program that nobody has installed runs on real clusters, from the machine where it was built."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.real_grid import SITES, RealGrid
from tests.support.real_programs import real_program

SOURCE = """\
#include <stdio.h>
int main(void) {
    char line[80];
    FILE *file = fopen("config/words", "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL) return 3;
    return printf("built here: %s", line) < 0;
}
"""


def test_a_compiled_program_travels_to_every_cluster(grid: RealGrid, tmp_path: Path) -> None:
    solver = tmp_path / "solver"
    subprocess.run([real_program("gcc"), "-x", "c", "-o", str(solver), "-"], input=SOURCE.encode(), check=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "words").write_text("and run there\n")
    components = "".join(f"- {{processors: 1, site: {site}}}\n" for site in SITES)
    text = f"application: {{executable: ./solver}}\nfiles: [solver, config]\ncomponents:\n{components}"
    job = grid.client.submit(text, files=[solver, tmp_path / "config"]).job.id
    found = grid.done(job)
    assert [grid.printed(job, part) for part in range(len(SITES))] == ["built here: and run there\n"] * len(SITES)
    assert [each.path for each in found.files] == ["config", "config/words", "solver"]
