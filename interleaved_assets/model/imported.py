"""Functions by name: what declares them loads no module that does their work."""

from functools import partial
from importlib import import_module
from typing import Any


def imported(place: str) -> Any:
    """Return a function that imports the function at ``place``, such as ``"package.module:function"``, and calls it."""
    return partial(_called, place)


def _called(place: str, *arguments: Any, **named: Any) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*arguments, **named)
