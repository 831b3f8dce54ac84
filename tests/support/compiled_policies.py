"""Policies compiled with lists allowed: some make lists as they go, which no kernel may."""

from __future__ import annotations

from typing import Any

import numba
from numba.extending import register_jitable

from koala.simulator.kernels.compiling import _compiler_of_parts
from tests.support.policy_worlds import BUILTIN

# Nobody calls these from C. The functions that a policy calls are compiled with it, and not once more separately.
_OPTIONS = {"no_cfunc_wrapper": True}
_CALLED_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True}


def compiled_policy(name: str) -> Any:
    """Return the function of a policy that names all it calls."""
    policy = BUILTIN.find(name)
    for helper in policy.helpers:
        register_jitable(**_CALLED_OPTIONS, pipeline_class=_compiler_of_parts())(helper)
    return numba.njit(**_OPTIONS)(policy.function)
