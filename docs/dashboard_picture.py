"""Takes the picture of the dashboard: a daemon with embedded sites, some jobs and files, and a real browser.

Run it after a change of the dashboard's look; it needs Chromium. The picture differs from run to run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from koala import Client

PICTURE = Path(__file__).resolve().parent / "images" / "dashboard.png"
GRID = """\
name: das
sites:
  delft: {processors: 6, kind: local}
  leiden: {processors: 4, kind: local}
  utrecht: {processors: 4, kind: local}
links:
  default: {bandwidth_mbit_s: 40, latency_ms: 5}
scheduler: {policy: CF, scan_interval_s: 0}
"""
# name, priority, sizes of components, seconds, input file
JOBS = (
    ("tides", "low", (2, 2), 6, None),
    ("genome", "low", (3,), 9, "reads.dat"),
    ("weather", "low", (4, 3), 14, None),
    ("ocean", "high", (2, 2), 16, "reads.dat"),
    ("plasma", "low", (3, 3, 3), 20, None),
    ("sweep", "low", (6,), 10, None),
)
SHOWN_AFTER_S = 8.0


def main() -> None:
    """Write the picture."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no Chromium: install chromium-headless-shell or chromium, and run this again")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "grid.yaml").write_text(GRID)
        (root / "reads.dat").write_bytes(b"acgt" * 8_000_000)
        command = [
            sys.executable,
            "-m",
            "koala",
            "up",
            "--grid",
            str(root / "grid.yaml"),
            "--state",
            str(root / "state"),
        ]
        daemon = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)  # noqa: S603
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()  # it says that it is up
            with Client(f"unix:{root / 'state' / 'koala.sock'}") as koala:
                _fill(koala, root)
                time.sleep(SHOWN_AFTER_S)
                _take(koala, chromium)
                for job in koala.each_job():
                    koala.cancel(job.id)
        finally:
            daemon.terminate()
            daemon.wait()


def _fill(koala: Client, root: Path) -> None:
    koala.register("reads.dat", "delft", path=str(root / "reads.dat"))
    for name, priority, sizes, seconds, file in JOBS:
        lines = [f"name: {name}", f"priority: {priority}", "components:"]
        for size in sizes:
            lines.append(f"  - processors: {size}")
            lines.append(f'    application: {{script: "sleep {seconds}"}}')
            if file is not None:
                lines.append(f"    input_files: [{file}]")
        koala.submit("\n".join(lines), source="job.yaml")
        time.sleep(0.7)


def _take(koala: Client, chromium: str) -> None:
    url = koala.login().url
    assert url is not None, "the daemon listens"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(url)
        page.screenshot(path=PICTURE, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
