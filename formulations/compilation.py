"""Plain loops over arrays, compiled by numba."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}


def compile_functions(
    module: ModuleType, names: Sequence[str], inner: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the functions of a module, compiled by numba and linked to each other.

    They are compiled at the first call and kept on disk for later processes.

    Parameters
    ----------
    module : module
        Its functions are plain Python over arrays.
    names : sequence of str
        The functions to compile. A function comes after those that it calls.
    inner : sequence of str
        Those of them that make no arrays and are called by the others only. They compile faster.
    """
    import numba

    linked = dict(module.__dict__)
    for name in names:
        own = FunctionType(linked[name].__code__, linked, name)
        options: dict[str, Any] = INNER if name in inner else {}
        try:
            linked[name] = numba.njit(cache=True, **options)(own)
        # There is no folder for the cache, so every process compiles it again.
        except RuntimeError:
            linked[name] = numba.njit(**options)(own)
    return {name: linked[name] for name in names}


def is_kept(function: Any) -> bool:
    """Return whether a function of `compile_functions` is kept on disk, newer than its source."""
    folder = getattr(getattr(function, "stats", None), "cache_path", None)
    if folder is None:
        return False
    source = Path(function.py_func.__code__.co_filename)
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    kept = Path(folder).glob(f"{source.stem}.{function.__name__}-*.{version}*.nbi")
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in kept)
