"""A settings file with every setting: the recommended ones set, the others commented out at their defaults."""

import json
import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from interleaved_assets.settings.sections import Settings

_RECOMMENDED: Final[Mapping[str, Any]] = {
    "errors.on_materialize_error": "drop_row",
    "scoring.scorers": ("sharpness", "sharpness_256", "qr", "thumbnail"),
    "selection.min_sharpness_256": 100.0,
    "selection.min_sharpness": 0.0,
    "selection.on_score_error": "drop_row",
}
"""Settings that differ from their defaults in a new file; docs/sharpness.md explains those of sharpness."""

_WIDTH: Final = 110
_HEAD: Final = """\
# Settings of this project; every command and the Dagster UI read this file.
# Settings behind a "#" are at their defaults. INTERLEAVED_<SECTION>__<KEY> in the environment overrides a key.
# Credentials are no settings: they come from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).
"""


def settings_template(raw_root: str, output_root: str) -> str:
    """The text of a new settings file for these roots."""
    values = {**_RECOMMENDED, "storage.raw_root": raw_root, "storage.output_root": output_root}
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        assert issubclass(section, BaseModel)
        parts.append("\n".join([f"[{name}]", f"# {field.description}", *_lines(name, section, values)]) + "\n")
    return "\n".join(parts)


def _lines(section: str, model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[str]:
    """The settings of a section, and of its tables as dotted names, so that each line can be uncommented alone."""
    for name, field in model.model_fields.items():
        full = f"{section}.{name}"
        key = full.partition(".")[2]
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _lines(full, inner, values)
            continue
        yield ""
        yield from textwrap.wrap(field.description or "", _WIDTH, initial_indent="# ", subsequent_indent="# ")
        if full in values:
            yield f"{key} = {_toml(values[full])}"
        else:
            default = field.get_default(call_default_factory=True)
            # TOML has no null: where the default is none, the line has no value
            yield f"# {key} = {'' if default is None else _toml(default)}".rstrip()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, int | float):
        return repr(value + 0)  # of a byte size, the plain number
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
