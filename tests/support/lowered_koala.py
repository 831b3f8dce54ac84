"""``koala`` with at most as many descriptors as the environment variable DESCRIPTORS allows."""

from __future__ import annotations

import os
import resource

from koala.cli import main

if __name__ == "__main__":
    allowed = int(os.environ.pop("DESCRIPTORS"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    main()
