"""Every setting as a line of a table: name, value, default, meaning."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

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
            yield SettingLine(f"{prefix}.{name}", value, default, meaning(field))


def meaning(field: FieldInfo) -> str:
    """What a setting means, in one line; its docstring has several."""
    return " ".join((field.description or "").split())
