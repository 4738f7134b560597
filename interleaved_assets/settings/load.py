"""The settings file: find it, read it, check it and make its relative paths absolute."""

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
from pydantic import ValidationError
from pydantic_settings.exceptions import SettingsError as SourceError

from interleaved_assets.io.formats.registry import all_formats
from interleaved_assets.io.storage import check_place, is_within
from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.io.storage.options import find_unlisted
from interleaved_assets.model.errors import OptionError, SettingsError, StorageError
from interleaved_assets.model.shown import has_query, has_user
from interleaved_assets.scoring.clip.columns import clip_columns
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.protocol.registry import file_settings, score_columns
from interleaved_assets.selection.applicable import applicable_filters
from interleaved_assets.settings.messages import describe, refuse_unknown_variables
from interleaved_assets.settings.recipe import KEY, recipe_values, with_recipe
from interleaved_assets.settings.sections import ENV_PREFIX, ReadingSettings, Settings

FILE_NAME = "interleaved.toml"
FILE_VARIABLE = "INTERLEAVED_SETTINGS"
LARGEST_BYTES = 2**20
"""Most bytes of a settings file; a larger one is another file, named by mistake."""
HOME_VARIABLE = "INTERLEAVED_HOME"
"""Environment variable of the Makefile with the folder of the Dagster instance; not a setting."""


def settings_path() -> Path:
    """Return the settings file in force; raise SettingsError if there is none, or its folder cannot be searched."""
    if (found := _present_file()) is not None:
        return found
    raise SettingsError(
        f"no settings file: looked for {', '.join(map(str, _candidates()))}. "
        f"Write one with interleaved init, start from the folder that has {FILE_NAME}, or name a file with --settings "
        f"or in {FILE_VARIABLE}."
    )


def load_settings_or_defaults(path: Path | str | None = None) -> Settings:
    """Return :func:`load_settings`, or the defaults with the environment's settings if no file is named or found.

    This is for work on single files, which needs no roots.
    """
    if path is None and not os.environ.get(FILE_VARIABLE) and _present_file() is None:
        return parse_settings("", Path.cwd() / FILE_NAME)
    return load_settings(path)


def load_settings(path: Path | str | None = None) -> Settings:
    """Read, check and complete the settings; relative paths are made absolute from the file's folder.

    Raises:
        SettingsError: no such file, not TOML, an unknown key or variable, a wrong type, a value out of range, a secret,
            or a filter whose score nothing measures; the message names file, key and what is allowed. Also, a locale
            in which a name that is not ASCII would give another key than elsewhere.
    """
    if (encoding := sys.getfilesystemencoding()) not in ("utf-8", "ascii"):  # from ASCII, Python keeps the bytes
        raise SettingsError(
            f"file names are read as {encoding} in this locale (LC_ALL, LANG), and shards would have other keys "
            "than in one with UTF-8. Set PYTHONUTF8=1."
        )
    return parse_settings(*_read(path))


def values_of_recipe(path: Path | str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the recipe that the settings file names, and the values that are in force because of it, by dotted name.

    Without a recipe both are empty. The file is one that :func:`load_settings` accepts.
    """
    own = _tables(*_read(path))
    return str(own.get(KEY, "")), recipe_values(own)


def _read(path: Path | str | None) -> tuple[str, Path]:
    """Return the text and the path of the settings file; raise SettingsError if it cannot be read."""
    file = settings_path() if path is None else Path(path)
    try:
        with LocalFile(file, str(file)) as opened:  # refuses devices and a FIFO, for which reading would wait
            if opened.size > LARGEST_BYTES:
                raise SettingsError(f"{file} has {opened.size:,} bytes, and a settings file at most {LARGEST_BYTES:,}")
            return bytes(opened.read_at(0, opened.size)).decode("utf-8-sig"), file  # Notepad writes a byte order mark
    except FileNotFoundError as error:
        raise SettingsError(f"no settings file {file}") from error
    except StorageError as error:
        raise SettingsError(f"settings: {error}") from error
    except OSError as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def parse_settings(text: str, file: Path) -> Settings:
    """Return the settings in ``text``, checked and completed as the content of ``file``, which need not exist."""
    try:
        return _parsed(text, file)
    except RecursionError:
        raise SettingsError(f"{file}, or a variable {ENV_PREFIX}…: a value is nested too deeply") from None


def _tables(text: str, file: Path) -> dict[str, Any]:
    """Return the sections in ``text`` by their names in lower case."""
    try:
        raw = tomllib.loads(text)
    except ValueError as error:  # the text is invalid, or a number has thousands of digits
        raise SettingsError(f"{file} is not valid TOML: {error}") from None
    found: dict[str, Any] = {}
    for name, table in raw.items():
        # the sections of pydantic-settings have no case, and of two it would take one
        if found.setdefault(name.lower(), table) is not table:
            raise SettingsError(f"{file}: {name}: the file has this section twice, in upper and lower case")
    return found


def _parsed(text: str, file: Path) -> Settings:
    raw = _tables(text, file)
    try:
        raw = with_recipe(raw)
    except OptionError as error:
        raise SettingsError(f"{file}: {KEY}: {error}") from error
    refuse_unknown_variables((FILE_VARIABLE, HOME_VARIABLE))
    try:
        settings = Settings(**raw)
    except SourceError as error:
        raise SettingsError(
            f"environment: {error}. Lists and sections are given as JSON there, as in "
            """INTERLEAVED_SELECTION__ORDER='["sharpness", "qr"]'"""
        ) from error
    except ValidationError as error:
        lines = "\n".join(f"  {describe(problem)}" for problem in error.errors())
        raise SettingsError(f"{file}:\n{lines}") from None  # its traceback would repeat the given values
    refuse_secrets(settings, file)
    try:
        of_images = (*score_columns(settings.scoring), *(clip_columns(settings.clip) if settings.clip.enabled else ()))
        of_texts = score_columns(settings.documents)
        applicable_filters(
            settings.selection, *([column.name for column in columns] for columns in (of_images, of_texts))
        )
    except OptionError as error:
        raise SettingsError(f"{file}: selection: {error}") from error
    if idle := settings.selection.without_bounds():
        raise SettingsError(
            f"{file}: selection.{idle[0]}: the filter has no bound and drops nothing. Give it one, or take this out"
        )
    storage = settings.storage.model_copy(
        update={name: _absolute(getattr(settings.storage, name), file.parent) for name in ("raw_root", "output_root")}
    )
    try:
        check_place(storage.output_root)
    except OptionError as error:
        raise SettingsError(f"{file}: storage.output_root: {error}") from error
    if is_within(storage.output_root, storage.raw_root) or is_within(storage.raw_root, storage.output_root):
        raise SettingsError(
            f"{file}: storage.raw_root {storage.raw_root} and storage.output_root {storage.output_root} "
            "lie inside one another: outputs would be read as new shards. Use separate folders."
        )
    named = {name: getattr(settings.documents, name) for name in file_settings(settings.documents.section)}
    documents = settings.documents.model_copy(
        update={name: _absolute(path, file.parent) for name, path in named.items() if path is not None}
    )
    clip = _with_absolute_files(settings.clip, file.parent)
    return settings.model_copy(
        update={"storage": storage, "reading": _reading_of(settings, file.parent), "documents": documents, "clip": clip}
    )


def _reading_of(settings: Settings, folder: Path) -> ReadingSettings:
    """Return the section ``[reading]`` with the paths in the settings of formats made absolute."""
    sections = settings.reading.sections()
    for name, paths in {one.section: one.paths for one in all_formats() if one.section is not None}.items():
        given = {path: getattr(sections[name], path) for path in paths}
        absolute = {path: _absolute(value, folder) for path, value in given.items() if value is not None}
        sections[name] = sections[name].model_copy(update=absolute)
    return settings.reading.model_copy(update=sections)


def _candidates() -> list[Path]:
    """Return the places where the settings file may be; the first one that exists is used."""
    if named := os.environ.get(FILE_VARIABLE):
        return [Path(named)]
    home = os.environ.get("DAGSTER_HOME")
    return [Path.cwd() / FILE_NAME, *([Path(home) / FILE_NAME] if home else [])]


def _present_file() -> Path | None:
    for candidate in _candidates():
        try:
            if candidate.is_file():
                return candidate.resolve()
        except OSError as error:
            raise SettingsError(f"the settings file {candidate} cannot be read: {error.strerror}") from error
    return None


def _with_absolute_files(clip: ClipSettings, folder: Path) -> ClipSettings:
    files = {}
    if clip.model_config_path is not None:
        files["model_config_path"] = _absolute(clip.model_config_path, folder)
    if clip.checkpoint is not None:
        files["pretrained"] = _absolute(clip.checkpoint, folder)
    heads = {name: head.model_copy(update={"path": _absolute(head.path, folder)}) for name, head in clip.heads.items()}
    return clip.model_copy(update={**files, "heads": heads})


def _absolute(root: str, folder: Path) -> str:
    protocol, _ = fsspec.core.split_protocol(root)
    if protocol is None:
        # as in a shell, "~name" is a folder of that name if there is no such user
        root = os.path.normpath(folder.resolve() / os.path.expanduser(root))  # noqa: PTH111
    return root.rstrip("/") or "/"


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
