"""The attributes of RSL that Koala reads, and those of Globus that it refuses, with what to do instead.

``reader`` defines their meaning for a job.
"""

from __future__ import annotations

from koala.descriptions.rsl.syntax import key_of

COMPONENT_ATTRIBUTES = (
    "count",
    "executable",
    "arguments",
    "koalaScript",
    "koalaProcessorsPerTask",
    "koalaTaskMemory",
    "koalaTaskGpus",
    "koalaTaskGpu",
    "koalaTaskConstraint",
    "koalaImage",
    "koalaRequires",
    "queue",
    "directory",
    "environment",
    "stdin",
    "stdout",
    "stderr",
    "fileStageIn",
    "fileStageOut",
    "koalaChunkFiles",
    "resourceManagerContact",
    "subjobStartType",
)
JOB_ATTRIBUTES = (
    "jobType",
    "maxWallTime",
    "maxTime",
    "koalaWalltimeSeconds",
    "koalaName",
    "koalaPriority",
    "koalaPolicy",
    "koalaFlexible",
    "koalaComponentMin",
    "koalaComponentsMax",
    "koalaSplits",
    "koalaPlacementTries",
    "koalaClaimingTries",
    "koalaRestarts",
    "koalaRetryOn",
    "koalaNeverOn",
    "koalaAfter",
    "koalaBegin",
    "koalaHold",
    "koalaArray",
    "koalaHome",
    "koalaKeepFor",
    "koalaPattern",
    "koalaBisectionMbit",
    "koalaPerProcessorMbit",
    "koalaCommunicationShare",
    "koalaDimensions",
)
KNOWN_ATTRIBUTES = {key_of(name): name for name in (*COMPONENT_ATTRIBUTES, *JOB_ATTRIBUTES, "rsl_substitution")}

# Attributes of Globus that Koala ignores. To drop them in silence would run a different job than requested.
UNSUPPORTED_ATTRIBUTES = {
    key_of(name): advice
    for name, advice in {
        "label": "remove it; components are numbered, and koalaName names the job",
        "project": "remove it; the site's own configuration names the project",
        "hostCount": "remove it; Koala counts processors, not hosts",
        "maxCpuTime": "remove it; write maxWallTime",
        "maxMemory": "write koalaTaskMemory, the memory of each task",
        "minMemory": "write koalaTaskMemory, the memory of each task",
        "fileStageInShared": "write fileStageIn",
        "fileCleanUp": "remove it; staged copies are removed when the job has ended",
        "scratchDir": "write directory",
        "libraryPath": "write LD_LIBRARY_PATH in environment",
        "dryRun": "remove it and use 'koala place'",
        "gramMyJob": "remove it; all processes of a component belong together",
        "restart": "remove it; koalaRestarts limits restarts",
        "saveState": "remove it; Koala keeps the job's state itself",
        "twoPhase": "remove it; co-allocation is always in two phases",
    }.items()
}
