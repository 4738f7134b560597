"""Messages about invalid settings: wrong values, unknown keys and unknown environment variables."""

import os
from collections.abc import Sequence
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.settings.lines import meaning
from interleaved_assets.settings.sections import ENV_PREFIX, Settings, fields_of

_IN_TOML: Final = {
    "tuple_type": "Input should be a list",
    "model_type": "Input should be a table",
    "dict_type": "Input should be a table",
    "string_pattern_mismatch": "Input should be a URL such as http://host:port",
}
"""Messages of pydantic that speak of Python's types or of patterns, in the words of the settings file."""
_OF_SECTION: Final = {
    ("selection", "model_type"): ", such as { min = 5 }",
    ("serve", "string_pattern_mismatch"): ", without user and query",
}
"""The text that a message adds for the settings of one section."""
_TYPES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a table",
}


def describe(problem: Any) -> str:
    """Describe a problem that pydantic reports, in one line; it never has a value that may be a secret."""
    key = ".".join(str(part) for part in problem["loc"]) or "the file"
    if problem["type"] == "extra_forbidden":
        known = _known_keys(problem["loc"][:-1])
        return f"{key}: unknown key" + (f"; allowed here: {', '.join(known)}" if known else "")
    if problem["type"] == "value_error":  # a check of this package says what is wrong and what is allowed
        return f"{key}: {problem['msg'].removeprefix('Value error, ')}"
    field = _field_at(problem["loc"])
    about = f" ({meaning(field)})" if field is not None and field.description else ""
    more = _OF_SECTION.get((key.partition(".")[0], problem["type"]), "")
    return f"{key}: {_IN_TOML.get(problem['type'], problem['msg'])}{more}{_given(problem)}{about}"


def _given(problem: Any) -> str:
    """Return the given value if it cannot be a secret; for texts, lists and storage, return its type."""
    value, field = problem["input"], _field_at(problem["loc"])
    is_text = field is not None and field.annotation in (str, str | None)
    if problem["loc"][:1] in ((), ("storage",)) or is_text or not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        return f", got {_TYPES.get(kind, f'a {kind}')}"
    return f", got {value!r}"


def _field_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    model: Any = Settings
    field = None
    for part in location:
        fields = _fields(model)
        if part not in fields:
            return field
        field = fields[part]
        model = field.annotation
    return field


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    field = _field_at(location)
    model: Any = Settings if field is None else field.annotation
    if get_origin(model) is dict:  # a table of bounds or heads by name
        model = get_args(model)[1]
    return sorted(_fields(model))


def _fields(model: Any) -> dict[str, FieldInfo]:
    """Return the fields of a section; none for what is no section, such as the type of a setting."""
    return fields_of(model) if isinstance(model, type) and issubclass(model, BaseModel) else {}


def refuse_unknown_variables(others: Sequence[str]) -> None:
    """Refuse misspelt variables, which would have no effect; ``others`` have the prefix and are no settings."""
    for variable in sorted(os.environ):
        name = variable.upper()  # variables of settings have no case
        if not name.startswith(ENV_PREFIX) or variable in others:
            continue
        location = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
        field = _field_at(location[:1])
        if field is None or (len(location) > 1 and location[1] not in _known_keys(location[:1])):
            raise SettingsError(f"{variable}: no such setting; variables are {ENV_PREFIX}<SECTION>__<KEY>")
