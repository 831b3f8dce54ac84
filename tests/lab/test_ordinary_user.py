"""A lab of a user without any rights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lab_making import mentioning, options_in

# Everything is imported before the rights go, since root's own Python may be out of reach for others.
AS_NOBODY = """
import concurrent.futures.thread, encodings.idna, os, pwd, sys, time
from pathlib import Path
from koala.lab import LabOptions, WideAreaLink, LabError, up, status
nobody = pwd.getpwnam("nobody")
os.chdir("/")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
directory, port = Path(sys.argv[1]), int(sys.argv[2])
try:
    up(LabOptions(directory=directory, first_port=port, wan=WideAreaLink(rate_mbit_s=1.0, delay_s=0.0)))
except LabError as error:
    print(error.for_user())
lab = up(LabOptions(directory=directory, first_port=port))
try:
    print("up" if status(lab).up else "not up")
    for site, words in ("alpha", ["sbatch", "-D"]), ("gamma", ["qsub", "-j", "y", "-wd"]):
        out = directory / site / "work" / "out"
        text = "#!/bin/sh\\necho $(id -un) at $SLURM_CLUSTER_NAME$SGE_CELL\\n"
        lab.run(site, *words, str(out.parent), "-o", "out", text=text)
        for _ in range(300):
            if out.exists() and out.stat().st_size:
                break
            time.sleep(0.1)
        print(out.read_text(), end="")
finally:
    lab.down()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="all tests of the lab run as an ordinary user here")
def test_a_user_without_rights_brings_a_lab_up_and_runs_jobs_in_it(directory: Path) -> None:
    options = options_in(directory)
    directory.parent.chmod(0o777)
    words = [sys.executable, "-c", AS_NOBODY, str(directory), str(options.first_port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "--wan: network namespaces are for root; run it as root, or leave --wan out",
        "up",
        "nobody at alpha",
        "nobody at gamma",
    ]
    assert mentioning(directory) == []
    assert not directory.exists()
