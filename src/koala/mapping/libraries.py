"""The libraries of the extra ``mapping``, loaded when they are first needed.

Local search and the heuristics of mapping need none of them. The LP, the exact clustering and the optimal mapping do,
and report a missing library.
"""

from __future__ import annotations

import importlib
from typing import Any


class MissingLibraryError(ValueError):
    """A method needs a library that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the library {name} is not installed")
        self.name = name

    def for_user(self) -> str:
        """Return the library, and how to install it."""
        return f"{self}; it comes with the extra `mapping`: pip install 'koala-scheduler[mapping]'"


def library(name: str) -> Any:
    """Import the module of this name. Raises ``MissingLibraryError`` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingLibraryError(name.split(".")[0]) from error
