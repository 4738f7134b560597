"""Every setting as a line of a table: name, value, default, meaning."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel

from interleaved_assets.settings.sections import Settings


class SettingLine(NamedTuple):
    """One setting in force."""

    name: str
    """With its section, such as ``selection.min_sharpness``."""
    value: Any
    default: Any
    description: str


def setting_lines(settings: Settings) -> Iterator[SettingLine]:
    """Every setting in force, in the order of the file."""
    for section in type(settings).model_fields:
        yield from _lines(section, getattr(settings, section))


def _lines(prefix: str, model: BaseModel) -> Iterator[SettingLine]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _lines(f"{prefix}.{name}", value)
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield SettingLine(f"{prefix}.{name}", value, default, meaning(type(model), name))


def meaning(section: type[BaseModel], name: str) -> str:
    """What a setting of ``section`` means, in one line; its docstring has several."""
    return section.model_fields[name].description or _docstrings(section).get(name, "")


@cache
def _docstrings(section: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of a section's settings, from its source; none where that is missing.

    pydantic can read them while it makes the class, which takes each process 50 ms; few processes show them.
    """
    try:
        (definition,) = ast.parse(inspect.getsource(section)).body
    except OSError:
        return {}
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for pair in pairwise(definition.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
