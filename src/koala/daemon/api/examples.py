"""Examples for the OpenAPI document: each body could be sent as it is."""

from __future__ import annotations

from fastapi.openapi.models import Example

JOB = """\
name: pair
application:
  executable: /bin/hostname
components:
  - processors: 2
  - processors: 2
"""

SUBMISSIONS: dict[str, Example] = {
    "yaml": {
        "summary": "A job in YAML",
        "value": {"description": JOB, "source": "pair.yaml", "client_token": "3f1c9f0e-pair"},
    },
    "script": {
        "summary": "A Slurm script",
        "value": {"description": "#!/bin/sh\n#SBATCH --ntasks=4\nhostname\n", "source": "job.sbatch"},
    },
}
REGISTRATIONS: dict[str, Example] = {
    "path": {
        "summary": "A copy of a file",
        "value": {"name": "data/genome", "site": "west", "path": "/data/genome.fa"},
    },
    "url": {
        "summary": "A file that stays at its URL",
        "value": {"name": "data/genome", "site": "west", "url": "https://files.example/genome.fa"},
    },
}
REPLICATIONS: dict[str, Example] = {"site": {"value": {"name": "data/genome", "site": "east"}}}
FORGETTINGS: dict[str, Example] = {
    "replica": {"summary": "One replica", "value": {"name": "data/genome", "site": "east"}},
    "file": {"summary": "The file and all its replicas", "value": {"name": "data/genome"}},
}
TOKEN_WISHES: dict[str, Example] = {
    "user": {"value": {"user": "ada", "scopes": ["read", "submit"], "note": "laptop"}},
}
