"""Settings as lines of a table: name, value, default, meaning."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from interleaved_assets.settings.sections import Settings, fields_of


class SettingLine(NamedTuple):
    """One setting in force."""

    name: str
    """Name with its section, such as ``selection.min_sharpness``."""
    value: Any
    default: Any
    description: str


def setting_lines(settings: Settings) -> Iterator[SettingLine]:
    """Yield every setting in force, in the order of the file."""
    for section in type(settings).model_fields:
        yield from _lines(section, getattr(settings, section))


def _lines(prefix: str, model: BaseModel) -> Iterator[SettingLine]:
    for name, field in fields_of(type(model)).items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _lines(f"{prefix}.{name}", value)
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield SettingLine(f"{prefix}.{name}", value, default, meaning(field))


def meaning(field: FieldInfo) -> str:
    """Return the meaning of a setting in one line; its docstring has several."""
    return " ".join((field.description or "").split())


def as_toml(value: Any) -> str:
    """Return the value of a setting as written in the file; empty for None, since TOML has no null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value + 0)  # a byte size becomes a plain number
    if isinstance(value, BaseModel):
        return as_toml(value.model_dump(exclude_none=True))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
