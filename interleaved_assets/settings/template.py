"""A new settings file: recommended settings, and most others as comments with their defaults."""

import textwrap
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from interleaved_assets.settings.lines import SettingLine, as_toml, setting_lines
from interleaved_assets.settings.sections import Settings

RECOMMENDED: Final[Mapping[str, Any]] = {
    "storage.image_bytes": "referenced",
    "errors.on_materialize_error": "drop_row",
    "scoring.scorers": ("sharpness", "sharpness_256", "qr", "thumbnail"),
    "selection.min_sharpness_256": 150.0,
    "selection.min_sharpness": 0.0,
    "selection.on_score_error": "drop_row",
    "serve.url": "http://127.0.0.1:3010",
}
"""Settings that differ from their defaults in a new file; docs/sharpness.md explains those of sharpness."""

_COUNTS: Final = tuple(f"selection.{side}_{unit}" for side in ("min", "max") for unit in ("images", "words"))
_LEFT_OUT: Final = ("documents.", "rewriting.", "selection.document", "selection.text", *_COUNTS)
"""Settings that a new file does not have: scores of texts and bounds on them (docs/text-scores.md), and functions that
change texts (docs/rewriting.md)."""
_WIDTH: Final = 110
_HEAD: Final = """\
# Settings of this project; every command and the Dagster UI read this file.
# Settings behind a "#" are at their defaults. INTERLEAVED_<SECTION>__<KEY> in the environment overrides a key.
# A recipe sets the filters of a published data set: a line such as recipe = "obelics" above the first section.
# Credentials are no settings: they come from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).
"""


def settings_template(raw_root: str, output_root: str) -> str:
    """Return the text of a new settings file for these roots."""
    values = {**RECOMMENDED, "storage.raw_root": raw_root, "storage.output_root": output_root}
    parts = [_HEAD]
    lines = (line for line in setting_lines(Settings.model_construct()) if not line.name.startswith(_LEFT_OUT))
    for section, settings in groupby(lines, lambda line: line.name.partition(".")[0]):
        about = f"[{section}]\n# {Settings.model_fields[section].description}\n"
        parts.append(about + "".join(_setting(line, values) for line in settings))
    return "\n".join(parts)


def _setting(line: SettingLine, values: Mapping[str, Any]) -> str:
    """Return the lines of one setting, with its name below the section, so that each can be uncommented alone."""
    about = textwrap.fill(line.description, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    key = line.name.partition(".")[2]
    if line.name in values:
        return f"\n{about}\n{key} = {as_toml(values[line.name])}\n"
    # TOML has no null, so the line has no value if the default is none
    default = "" if line.default is None else as_toml(line.default)
    return f"\n{about}\n{f'# {key} = {default}'.rstrip()}\n"
