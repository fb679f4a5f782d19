"""The four axes of speculation, their legal combinations, and what the loaded models allow.

The classes of an axis register themselves: each lies in a module of the axis' package and says its own name, as
`info.name` or as `name`. Another package adds some through the entry-point groups of `PLUGINS`.
"""

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from localspec.errors import IncompatibleError

PACKAGES = {
    "method": "localspec.methods",
    "tree": "localspec.trees",
    "length": "localspec.control",
    "verify": "localspec.verify",
}
PLUGINS = {**PACKAGES, "length": "localspec.lengths", "verify": "localspec.verifiers"}


@cache
def registered(axis: str) -> Mapping[str, Any]:
    """Return the classes of an axis (method, tree, length, verify) by the names that people type, sorted.

    It imports all of them, and numpy with them.
    """
    return dict(sorted({**_plugins(axis), **dict(_named(_classes(PACKAGES[axis])))}.items()))


def axis_names(axis: str) -> tuple[str, ...]:
    """Return the names of an axis, `auto` first where it is one."""
    return (*(("auto",) if axis != "tree" else ()), *registered(axis))


def _classes(package: str) -> Iterator[type[Any]]:
    for submodule in pkgutil.iter_modules(import_module(package).__path__):
        module = import_module(f"{package}.{submodule.name}")
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__:
                yield each


def _named(classes: Iterator[type[Any]]) -> Iterator[tuple[str, type[Any]]]:
    for each in classes:
        own = vars(each)
        name = getattr(own.get("info"), "name", own.get("name"))
        if isinstance(name, str):
            yield name, each


def _plugins(axis: str) -> dict[str, type[Any]]:
    """Return what other installed packages add to an axis; raises IncompatibleError for one that does not load."""
    from importlib.metadata import entry_points  # late: most commands name no method

    classes = {}
    for entry in entry_points(group=PLUGINS[axis]):
        try:
            classes[entry.name] = entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.value
            reason = f"the {axis} {entry.name!r} of the package {package} cannot be loaded: {error}"
            raise IncompatibleError(reason, hint=f"pip uninstall {package}") from error
    return classes
