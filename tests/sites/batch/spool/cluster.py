"""Clusters of the batch system for tests: a directory, and programs in a PATH of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROCESSORS = 4
QUEUE = "batch"


class SpoolCluster:
    """An idle cluster below ``root``."""

    def __init__(self, root: Path) -> None:
        for name in ("bin", "cluster/jobs"):
            (root / name).mkdir(parents=True)
        what = {"queue": QUEUE, "processors": PROCESSORS}
        (root / "cluster" / "cluster.json").write_text(json.dumps(what))
        text = Path(__file__).with_name("program.py").read_text()
        for name in ("spsub", "spstat", "spdel"):
            program = root / "bin" / name
            program.write_text(f"#!{sys.executable}\n{text}")
            program.chmod(0o755)
        self.environment = {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "SPOOL_ROOT": str(root / "cluster"),
        }

    def submit(self, name: str, processors: int, text: str, directory: Path) -> None:
        """A job of somebody else."""
        script = directory / f"{name}.sh"
        script.write_text(text)
        words = ["--name", name, "--processors", str(processors), "--home", str(directory), "--log", "/dev/null"]
        self.run("spsub", *words, str(script))

    def run(self, *words: str) -> str:
        """What a command prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
