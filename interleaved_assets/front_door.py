"""Names that a package offers to users, each imported from its module when it is first used.

Any import of a module below a package runs the package's ``__init__`` first. Were the names imported there, the module
with the settings of a section could not be imported without everything that reads and decodes shards.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def offered(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], Iterable[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of ``package``.

    Args:
        package: its name in full.
        names: by module below the package, the names that it offers. None of them may be that of a module of the
            package, which the import of that module would put in its place.
    """
    modules = {name: module for module, found in names.items() for name in found}

    def offer(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)  # so that it is looked up once
        return value

    return offer, lambda: sorted({*vars(sys.modules[package]), *modules})
