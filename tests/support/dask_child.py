"""A program of Dask in a process that has imported Dask before: it reads its settings from the environment anew."""

from __future__ import annotations

import runpy
import sys

import dask

if __name__ == "__main__":
    dask.config.refresh()
    runpy.run_module(sys.argv.pop(1), run_name="__main__")
