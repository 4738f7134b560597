"""Arguments of the form ``NAME=VALUE``: settings of ``[selection]``."""

import tomllib
from collections.abc import Iterable
from typing import Any, Final

from interleaved_assets.cli.terminal.console import short
from interleaved_assets.model.errors import SettingsError

LONGEST_VALUE: Final = 1000
"""Most characters of a value; Python converts at most 4,300 digits to a number."""


def names_and_values(arguments: Iterable[str]) -> dict[str, Any]:
    """Return the settings that ``NAME=VALUE`` arguments give; values are those of TOML, unquoted texts, or ``none``."""
    return dict(map(_name_and_value, arguments))


def _name_and_value(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign:
        raise SettingsError(f"{short(text)} is not NAME=VALUE, such as min_sharpness=80")
    if len(value) > LONGEST_VALUE:
        raise SettingsError(f"the value of {short(name)} has {len(value)} characters, over {LONGEST_VALUE}")
    if value == "none":  # TOML has no null, which turns a bound off
        return name, None
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return name, value  # an unquoted text, such as drop_row
    except RecursionError:
        raise SettingsError(f"the value of {short(name)} is nested too deeply") from None
    if len(found) > 1:
        raise SettingsError(f"{short(text)} holds more than one value")
    return name, found["value"]
