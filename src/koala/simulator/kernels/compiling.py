"""Compiles plain functions with numba, and stores the result on disk for the next process.

The result is in a folder named after everything that went into it: the code of the function and of all functions that
it calls, the constants they use, and the versions of Python and numba. A changed policy therefore never runs with an
old kernel. Folders unused for a month are deleted. Their content is code that will be executed: a folder that belongs
to somebody else, or that others may write into, is left alone. If nothing can be stored, every process compiles
functions in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar, cast

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")

# No reference counting: kernels create no arrays, and counting at every access to a named tuple of arrays takes three
# quarters of the time. No tests for a divisor of 0, which kernels handle themselves. And no entry points for callers
# from C, which would require compiling every function a second time.
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True}
# Functions that a kernel calls are inlined: passing all these arrays takes longer than most functions do. The kernel
# itself is called, or its whole code would exist twice.
_CALLED_OPTIONS = {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True}
_CONSTANTS = (bool, int, float, str, bytes, tuple, type(None))
# How long an unused folder is kept.
KEPT_UNUSED_S = 30 * 24 * 3600.0
_LOCK = "lock"
_FOLDER_NAME = re.compile(r"[0-9a-f]{32}")

_registering = threading.Lock()
_registered: set[FunctionType] = set()


def compiled(function: Callable[_Parameters, _Answer]) -> Callable[_Parameters, _Answer]:
    """Return the same function as machine code. Floating point is not reordered: the answers equal Python's, bit by
    bit.

    The function and the functions that it calls are plain functions over numbers, arrays and named tuples of them,
    and call one another by their own names. They create no arrays: arrays are passed as arguments, by position. A
    function that leads back to itself is refused with a ``ValueError``, since numba's cache on disk does not survive
    that. Each set of argument types is compiled at its first call, or read from disk; if two processes do so at once,
    one compiles and the other waits and reads. A division by 0 is not caught: it gives infinity or an undefined
    value.
    """
    return cast("Callable[_Parameters, _Answer]", _compiled(cast("FunctionType", function)))


def kernels_folder() -> Path | None:
    """Return the folder of compiled kernels: in the cache directory of the user, who may delete it at any time."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    if cache_home.startswith("/"):  # the XDG specification says to ignore a relative one
        return Path(cache_home, "koala", "kernels")
    try:
        return Path.home() / ".cache" / "koala" / "kernels"
    except RuntimeError:  # a user without a home
        return None


def fingerprint(function: Callable[..., Any]) -> str:
    """Return the folder name of a compiled function: it changes with everything that could change the machine
    code."""
    import numba

    digest = hashlib.sha256(f"{sys.version} numba {numba.__version__} {_CALLED_OPTIONS}".encode())
    for part in _parts(cast("FunctionType", function)):
        digest.update(repr(_content(part)).encode())
    return digest.hexdigest()[:32]


@cache
def _compiled(function: FunctionType) -> _Compiled:
    return _Compiled(function)


class _Compiled:
    """A function that is compiled for each set of argument types at its first use with them."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._parts = _parts(function)
        self._ready: set[Any] = set()
        self._on_disk = True
        self._dispatcher: Any = None
        self._compiling = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(_kind(argument) for argument in arguments)
        if kinds not in self._ready:
            with self._compiling:
                self._compile(arguments)
            self._ready.add(kinds)
        return self._dispatcher(*arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        import numba

        typeof: Any = numba.typeof
        types = tuple(typeof(argument) for argument in arguments)
        if self._on_disk:
            try:
                self._compile_on_disk(types)
            except Exception:  # a damaged cache raises anything; errors of the function are raised below
                self._on_disk = False
                self._dispatcher = None
        if not self._on_disk:
            if self._dispatcher is None:
                self._dispatcher = _dispatcher(self._parts, None)
            self._dispatcher.compile(types)

    def _compile_on_disk(self, types: tuple[Any, ...]) -> None:
        folder = kernels_folder()
        if folder is None:
            raise FileNotFoundError("no directory for compiled kernels: neither XDG_CACHE_HOME nor HOME is set")
        with _alone_in(folder / fingerprint(self._function)) as own:
            if self._dispatcher is None:
                self._dispatcher = _dispatcher(self._parts, own)
            self._dispatcher.compile(types)


def _kind(value: Any) -> Any:
    """Return what determines numba's type of a value. Asking numba takes a hundred times as long."""
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    if hasattr(value, "dtype") and hasattr(value, "flags"):
        return type(value), value.dtype, value.ndim, value.flags.num
    return type(value)


@contextmanager
def _alone_in(folder: Path) -> Iterator[Path]:
    """Create the folder if needed, and keep other processes and threads from compiling into it meanwhile.

    Raises PermissionError if other users could have written into it.
    """
    kernels = folder.parent
    kernels.parent.parent.mkdir(parents=True, exist_ok=True)
    is_new = not folder.exists()
    while True:
        for ours in (kernels.parent, kernels, folder):
            _own_folder(ours)
        with (folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_in_place(folder / _LOCK, lock.fileno()):
                continue  # deleted as unused while we waited for it
            os.utime(lock.fileno())
            if is_new:
                _delete_unused(kernels, os.fstat(lock.fileno()).st_mtime)
            yield folder
            return


def _own_folder(folder: Path) -> None:
    """Create the folder if needed; raise PermissionError if anybody but the user could write into it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise PermissionError(f"{folder} is not a folder of this user that nobody else may write into")


def _is_in_place(path: Path, descriptor: int) -> bool:
    """Return True if the open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _delete_unused(kernels: Path, now_s: float) -> None:
    """Delete folders that have been unused for long; those in use at this moment are left."""
    long_ago_s = now_s - KEPT_UNUSED_S
    for folder in kernels.iterdir():
        if _FOLDER_NAME.fullmatch(folder.name) is None:
            continue
        try:
            if (folder / _LOCK).stat().st_mtime >= long_ago_s:
                continue
            with (folder / _LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock.fileno()).st_mtime < long_ago_s:
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, or deleted by another process just now
            continue


def _dispatcher(parts: list[FunctionType], folder: Path | None) -> Any:
    """Return numba's compiler for the first of the parts, which may call the others; it stores its results in the
    folder."""
    import numba
    from numba.extending import register_jitable

    function, *callees = parts
    with _registering:
        for callee in callees:
            if callee not in _registered:
                register_jitable(**_CALLED_OPTIONS, pipeline_class=_compiler_of_parts())(callee)
                _registered.add(callee)
    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    if folder is None:
        return dispatcher
    dispatcher._cache = _kept_in(str(folder))(function)
    if not Path(dispatcher.stats.cache_path).is_relative_to(folder):
        # For example beside the source, where numba would take an old kernel for a new one.
        raise PermissionError(f"numba would keep its work in {dispatcher.stats.cache_path} instead of {folder}")
    return dispatcher


def _kept_in(folder: str) -> Any:
    """Return numba's cache for one function, in this folder.

    By default numba keys its results by the path and modification time of the source, so that another checkout or
    installation of the same code would compile everything again. The folder is named after the code.
    """
    from numba.core import caching

    anywhere: Any = caching._CacheLocator
    results: Any = caching.CompileResultCacheImpl
    of_function: Any = caching.FunctionCache

    class InFolder(anywhere):  # type: ignore[misc]
        def get_cache_path(self) -> str:
            return folder

        def get_source_stamp(self) -> str:
            return ""

        def get_disambiguator(self) -> str:
            return ""

        @classmethod
        def from_function(cls, _function: Any, _file: str) -> InFolder:
            return cls()

    class Results(results):  # type: ignore[misc]
        _locator_classes = (InFolder,)

    class Kept(of_function):  # type: ignore[misc]
        _impl_class = Results

    return Kept


@cache
def _compiler_of_parts() -> Any:
    """Return numba's compiler for functions that kernels call, without machine code of their own.

    By default numba generates optimised machine code for every function, and again for every function that calls it.
    Here all of it becomes a part of the kernel, so this code would never run.
    """
    from numba.core import codegen, compiler

    library: Any = codegen.JITCodeLibrary
    whole: Any = compiler.Compiler

    class Part(library):  # type: ignore[misc]
        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0  # like a function that cannot be called from Python

        @property
        def codegen(self) -> Part:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Set what an error raised here would need; there is no machine code to find it."""

    class CompilerOfParts(whole):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            self.state.library = Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            self.state.library.enable_object_caching()
            return super().define_pipelines()

    return CompilerOfParts


def _parts(function: FunctionType, above: tuple[FunctionType, ...] = ()) -> list[FunctionType]:
    """Return the function and all functions that it calls, directly or not, each once, in a fixed order."""
    if function in above:
        cycle = " -> ".join(each.__name__ for each in (*above[above.index(function) :], function))
        raise ValueError(f"{function.__name__} calls itself ({cycle}), which cannot be compiled; write it as a loop")
    found = {function: None}
    for value in _read_by(function).values():
        if isinstance(value, FunctionType):
            found.update(dict.fromkeys(_parts(value, (*above, function))))
    return list(found)


def _content(function: FunctionType) -> tuple[Any, ...]:
    """Return everything of a function that affects its compilation, except the content of the functions that it
    calls."""
    values = [(name, _told(value)) for name, value in _read_by(function).items()]
    defaults = function.__defaults__, function.__kwdefaults__
    return function.__module__, function.__qualname__, defaults, _told(function.__code__), values, _layouts(function)


def _layouts(function: FunctionType) -> list[Any]:
    """Return the fields of the named tuples among the parameters, in order: machine code addresses them by
    position."""
    words = re.findall(r"\w+", " ".join(map(str, function.__annotations__.values())))
    named = [function.__globals__.get(word) for word in words]
    return [_told(value) for value in named if isinstance(value, type) and hasattr(value, "_fields")]


def _read_by(function: FunctionType) -> dict[str, Any]:
    """Return the values of the global names and of the variables of enclosing functions that a function uses."""
    read: dict[str, Any] = {}
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                read[name] = function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        read[name] = cell.cell_contents
    return read


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _told(value: Any) -> Any:
    """Return a value in a form whose ``repr`` changes with the value and with nothing else, as far as kernels use
    values."""
    if isinstance(value, CodeType):
        constants = [_told(constant) for constant in value.co_consts]
        return value.co_code, constants, value.co_names, value.co_varnames, value.co_freevars
    if isinstance(value, type):  # an enumeration or a named tuple
        return value.__qualname__, repr(getattr(value, "__members__", None)), getattr(value, "_fields", None)
    if isinstance(value, FunctionType):
        return value.__module__, value.__qualname__
    if isinstance(value, _CONSTANTS):
        return value
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return value.dtype.str, value.shape, value.tobytes()
    return type(value).__qualname__
