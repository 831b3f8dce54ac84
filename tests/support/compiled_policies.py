"""Policies compiled with lists allowed: some make them as they go, and no kernel may.

What was compiled is kept where kernels are, by all that went into it, for the next run of the tests.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import numba
from numba.extending import register_jitable

from koala.simulator.kernels import compiling
from tests.support.policy_worlds import BUILTIN

# Nobody calls these from C. What a policy calls is made into machine code with it, and not once more by itself.
_OPTIONS = {"no_cfunc_wrapper": True}
_CALLED_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True}


def compiled_policy(name: str) -> Any:
    """The function of a policy that names all it calls."""
    policy = BUILTIN.find(name)
    for helper in policy.helpers:
        register_jitable(**_CALLED_OPTIONS, pipeline_class=compiling._compiler_of_parts())(helper)
    dispatcher: Any = numba.njit(**_OPTIONS)(policy.function)
    kernels = compiling.kernels_folder()
    if kernels is not None:
        content = f"{compiling.fingerprint(policy.function)} {_CALLED_OPTIONS}"
        folder = kernels / hashlib.sha256(content.encode()).hexdigest()[:32]
        with contextlib.suppress(OSError), compiling._alone_in(folder):  # else it is compiled in memory
            dispatcher._cache = compiling._kept_in(str(folder))(policy.function)
    return dispatcher
