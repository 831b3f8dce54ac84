"""Valid documents in every format, and strategies that draw requests, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from koala.descriptions.fields import DURATION_S_MAX
from koala.model.request import (
    BANDWIDTH_MBIT_S_MAX,
    CUBE_DIMENSIONS_MAX,
    Application,
    Communication,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    JobType,
    Pattern,
    Priority,
    Request,
)
from koala.model.request_size import JOB_NAME_CHARACTERS_MAX, RESTARTS_MAX

JOB_YAML = """\
name: laplace
priority: high
policy: CF
type: mpi
walltime: 15m
application:
  executable: /opt/laplace
  arguments: [--size, 4000]
  directory: run
  environment: {OMP_NUM_THREADS: 1}
  stdout: out.txt
input_files: [mesh.dat, {name: big.dat, mode: chunk, path: in/big.dat}]
components:
  - {processors: 8, site: delft}
  - {processors: 4, count: 2}
limits: {placement_tries: 10, claiming_tries: 5, restarts: 3}
"""

JOB_RSL = """\
+(&(rsl_substitution = (BASE /opt))
   (count = 8) (resourceManagerContact = "delft")
   (* what every component runs *)
   (executable = $(BASE)/laplace) (arguments = --size 4000) (directory = run)
   (environment = (OMP_NUM_THREADS 1)) (stdout = out.txt)
   (fileStageIn = (mesh.dat) (big.dat in/big.dat)) (koalaChunkFiles = big.dat)
   (jobType = mpi) (max_wall_time = 15)
   (koalaName = laplace) (koalaPriority = high) (koalaPolicy = CF)
   (koalaPlacementTries = 10) (koalaClaimingTries = 5) (koalaRestarts = 3))
 (&(count = 4) (executable = "/opt" # "/laplace") (arguments = --size 4000) (directory = run)
   (environment = (OMP_NUM_THREADS 1)) (stdout = out.txt)
   (fileStageIn = (mesh.dat) (big.dat in/big.dat)) (koalaChunkFiles = big.dat))
 (&(count = 4) (executable = '/opt/laplace') (arguments = --size 4000) (directory = run)
   (environment = (OMP_NUM_THREADS 1)) (stdout = out.txt)
   (fileStageIn = (mesh.dat) (big.dat in/big.dat)) (koalaChunkFiles = big.dat))
"""

JOB_SBATCH = """\
#!/bin/sh
#SBATCH --job-name=laplace -t 15
#SBATCH -n 8 -M delft
#SBATCH -D run -o out.txt --export=OMP_NUM_THREADS=1
#KOALA --priority high --policy CF --type mpi
#KOALA --input-file mesh.dat --input-file big.dat:chunk:in/big.dat
#KOALA --placement-tries 10 --claiming-tries 5 --restarts 3
#SBATCH hetjob
#SBATCH -N 2 --ntasks-per-node=2
#SBATCH hetjob
#SBATCH -n 2 -c 2

/opt/laplace --size 4000
"""

GRID_YAML = """\
name: DAS-2
sites:
  vu: {processors: 144, quota: 0.9, kind: slurm, file_server: "gsiftp://fs.vu", uplink_mbit_s: 622}
  delft:
    processors: 64
    simulation:
      local_scheduler: easy
      background: {user_load: 0.2, band_low: 0.1, band_high: 0.3, seed: 7}
      startup: {base_s: 9, jitter: 0.5}
      faults: {component_failure: 0.01, outages: [[10, 20], [30.5, 40]], mean_time_between_outages_s: 3600}
  2024: {processors: 2}
links:
  default: {bandwidth_mbit_s: 200, latency_ms: 4}
  pairs:
    - {between: [vu, delft], bandwidth_mbit_s: 622, latency_s: 0.002}
    - {between: ["2024", vu], latency_ms: 1}
network:
  uplink_mbit_s: 1000
  groups: [{name: west, uplink_mbit_s: 155.5, members: [vu, delft]}]
  links: {sea: 45}
  routes: [{between: [vu, "2024"], over: [sea]}]
files:
  mesh.dat: {size: 4 GB, replicas: [vu, delft]}
  small.dat: {size_bytes: 17, replicas: [2024]}
scheduler: {policy: CF, scan_interval_s: 0, hold_placed: yes, check_interval_s: null, restarts_max: null}
simulation:
  startup: {base_s: 5, per_component_s: 2, load_factor: 0.5, jitter: 0.1}
  answers: {late: 0.1, twice: 0.05, never: 0.01, transfer_break: 0.02}
  report_interval_s: 30
  background_band: grid
  heal_at_s: 5000
"""

FILES = (InputFile(name="mesh.dat"), InputFile(name="big.dat", mode=InputMode.CHUNK, path="in/big.dat"))


def laplace(application: Application) -> Request:
    """Return the request that all the jobs above describe, with this application for its components."""
    sizes: tuple[tuple[int, str | None], ...] = ((8, "delft"), (4, None), (4, None))
    return Request(
        name="laplace",
        priority=Priority.HIGH,
        policy="CF",
        job_type=JobType.MPI,
        walltime_s=900.0,
        components=tuple(
            Component(processors=processors, site=site, application=application, input_files=FILES)
            for processors, site in sizes
        ),
        placement_tries_max=10,
        claiming_tries_max=5,
        restarts_max=3,
    )


# Any text that a file can hold: quotes, parentheses, line ends, control characters, every script.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
some_texts = texts.filter(bool)
# Any name of a job, file or program: one line of anything.
labels = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
variables = some_texts.filter(lambda text: "=" not in text)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)


@st.composite
def applications(draw: st.DrawFn) -> Application:
    """Draw an application of any form."""
    runs: dict[str, Any] = draw(
        st.one_of(
            st.fixed_dictionaries({"script": texts}),
            st.fixed_dictionaries({}, optional={"executable": labels, "arguments": st.lists(texts).map(tuple)}),
        )
    )
    environment = draw(st.dictionaries(variables, texts, max_size=3))
    return Application(
        **runs,
        environment=tuple(environment.items()),
        directory=draw(st.none() | some_texts),
        stdin=draw(st.none() | some_texts),
        stdout=draw(st.none() | some_texts),
        stderr=draw(st.none() | some_texts),
    )


input_files = st.builds(InputFile, name=labels, mode=st.sampled_from(InputMode), path=st.none() | some_texts)


@st.composite
def flexibilities(draw: st.DrawFn, total: int) -> Flexibility:
    """Draw a way to divide a total."""
    cuts = st.lists(st.integers(1, max(1, total - 1)), max_size=3, unique=True).map(sorted)
    splits = [
        tuple(b - a for a, b in zip([0, *cut], [*cut, total], strict=True))
        for cut in draw(st.lists(cuts, max_size=2))
        if total > 1
    ]
    return Flexibility(
        component_min=draw(st.integers(1, total)),
        components_max=draw(st.none() | st.integers(1, 1000)),
        splits=tuple(splits),
    )


policies = st.one_of(names, names.map("{}(chunk=0.85)".format), st.just("A1(objective=fewest-clusters)"))
bandwidths = st.floats(0, BANDWIDTH_MBIT_S_MAX, allow_subnormal=False) | st.sampled_from([0.1, 300.0])


@st.composite
def communications(draw: st.DrawFn) -> Communication:
    """Draw any way to communicate."""
    pattern = draw(st.sampled_from(Pattern))
    given = draw(st.sampled_from(["bisection_mbit_s", "per_processor_mbit_s", ""]))
    return Communication(
        pattern=pattern if given else Pattern.NONE,
        share=draw(st.floats(0, 1, allow_subnormal=False)),
        dimensions=draw(st.integers(1, CUBE_DIMENSIONS_MAX)),
        **({given: draw(bandwidths)} if given else {}),
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request of any structure."""
    flexible = draw(st.booleans())
    per_task = 1 if flexible else draw(st.sampled_from([1, 1, 2, 64]))
    runs = applications().map(lambda application: msgspec.structs.replace(application, processors_per_task=per_task))
    shared = draw(st.none() | runs)
    components = [
        Component(
            processors=per_task * draw(st.integers(1, 3_000_000 // per_task)),
            application=draw(runs) if shared is None else shared,
            input_files=tuple(draw(st.lists(input_files, max_size=2, unique_by=lambda file: file.name))),
            site=None if flexible else draw(st.none() | names),
        )
        for _ in range(1 if flexible else draw(st.integers(1, 3)))
    ]
    tries = st.none() | st.integers(1, 10**6)
    return Request(
        components=tuple(components),
        name=draw(labels)[:JOB_NAME_CHARACTERS_MAX],
        flexible=draw(flexibilities(components[0].processors)) if flexible else None,
        priority=draw(st.sampled_from(Priority)),
        policy=draw(st.none() | policies),
        job_type=draw(st.sampled_from(JobType)),
        walltime_s=draw(
            st.none()
            | st.integers(1, 10**6).map(lambda minutes: minutes * 60.0)
            | st.floats(0, DURATION_S_MAX, exclude_min=True, allow_subnormal=False)
        ),
        placement_tries_max=draw(tries),
        claiming_tries_max=draw(tries),
        restarts_max=draw(st.none() | st.integers(0, RESTARTS_MAX)),
        home=draw(st.none() | names),
        communication=draw(st.none() | communications()),
    )
