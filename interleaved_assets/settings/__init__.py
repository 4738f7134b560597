"""``interleaved.toml``: every setting of the project, typed, validated, with its unit and default.

The file is found through ``INTERLEAVED_SETTINGS``, else as ``interleaved.toml`` in the working directory, else in
``DAGSTER_HOME``. Environment variables win over the file: ``INTERLEAVED_<SECTION>__<KEY>``, for example
``INTERLEAVED_STORAGE__RAW_ROOT=s3://bucket/raw``.

Settings are sent with every run and written to records, so they must not contain secrets: a URL with a user, a password
or a query is refused, and so is a storage option that is not known to be public. Credentials come from the environment
that boto and fsspec read (``AWS_ACCESS_KEY_ID``, ``FSSPEC_S3``, …). No message contains a value given for storage.
"""

from interleaved_assets.settings.lines import SettingLine, as_toml, setting_lines
from interleaved_assets.settings.load import (
    load_settings,
    load_settings_or_defaults,
    parse_settings,
    settings_path,
    values_of_recipe,
)
from interleaved_assets.settings.recipe import read_recipe, recipe_lines, recipe_names
from interleaved_assets.settings.sections import (
    ENV_PREFIX,
    PluginSettings,
    PublishSettings,
    ReadingSettings,
    Settings,
    StorageSettings,
)
from interleaved_assets.settings.template import settings_template

__all__ = [
    "ENV_PREFIX",
    "PluginSettings",
    "PublishSettings",
    "ReadingSettings",
    "SettingLine",
    "Settings",
    "StorageSettings",
    "as_toml",
    "load_settings",
    "load_settings_or_defaults",
    "parse_settings",
    "read_recipe",
    "recipe_lines",
    "recipe_names",
    "setting_lines",
    "settings_path",
    "settings_template",
    "values_of_recipe",
]
