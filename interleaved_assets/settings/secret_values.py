"""The check that settings contain no secret: settings are sent with every run and written to records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interleaved_assets.io.storage.options import find_unlisted
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.model.shown import has_query, has_user
from interleaved_assets.settings.sections import Settings


def refuse_secrets(settings: Settings, file: Path) -> None:
    """Raise if a URL may contain a secret, or an option is not known to be public; the message has no value."""
    for name, value in _texts(settings.model_dump()):
        # an option that names a host may lack the scheme
        if has_user(value) or (name.startswith("storage.options.") and has_user(f"https://{value}")):
            raise SettingsError(
                f"{file}: {name} has a user or password in its URL, and settings are sent with every run: leave it out "
                "and give it in the environment, for S3 as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else as "
                "FSSPEC_<SCHEME>_<OPTION>"
            )
        if has_query(value):
            raise SettingsError(
                f"{file}: {name} has a query or a fragment in its URL (after ? or #), as signed URLs have, and "
                "settings are sent with every run: name the file without it and give credentials in the "
                "environment, or download it and name the copy"
            )
    if (option := find_unlisted(settings.storage.options)) is not None:
        raise SettingsError(
            f"{file}: storage.options.{option} is not known to be public, and settings are sent with every run: "
            "give it in the environment, for S3 as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else as "
            f"FSSPEC_<SCHEME>_{option.partition('.')[0].upper()}"
        )


def _texts(values: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in the settings, also inside tables and lists, with the name of its setting."""
    if isinstance(values, str):
        yield name, values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from _texts(value, f"{name}.{key}" if name else str(key))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _texts(value, name)
