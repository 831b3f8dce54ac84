"""The extra libraries that some verbs need, and the message if one is missing."""

from __future__ import annotations

import importlib.util

from koala.cli.errors import UserError

# The libraries of each extra, by their import names.
_EXTRAS = {
    "study": ("matplotlib", "numpy", "scipy"),
    "kernel": ("numba", "numpy"),
    "dask": ("distributed",),
    "parquet": ("pyarrow",),
    "mapping": ("highspy", "networkx", "numpy", "scipy"),
    "traces": ("numpy",),
}


def refuse_without(verb: str, *extras: str) -> None:
    """Raise ``UserError`` with what to install if a library of one of these extras is missing."""
    for extra in extras:
        missing = [library for library in _EXTRAS[extra] if importlib.util.find_spec(library) is None]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise UserError(
                f"{verb}: {' and '.join(missing)} {are} not installed; "
                f"install them with: pip install 'koala-scheduler[{extra}]'"
            )
