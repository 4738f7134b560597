"""``interleaved.toml``: every setting of the project, typed, validated, with its unit and default.

The file is found through ``INTERLEAVED_SETTINGS``, else as ``interleaved.toml`` in the working directory, else in
``DAGSTER_HOME``. Environment variables win over the file: ``INTERLEAVED_<SECTION>__<KEY>``, for example
``INTERLEAVED_STORAGE__RAW_ROOT=s3://bucket/raw``.

Settings are sent with every run and written to records, so they must not contain secrets: a URL with a user, a password
or a query is refused, and so is a storage option that is not known to be public. Credentials come from the environment
that boto and fsspec read (``AWS_ACCESS_KEY_ID``, ``FSSPEC_S3``, …). No message contains a value given for storage.
"""

import importlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import fsspec
from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from interleaved_assets.io.storage.options import StorageOptionsByScheme, by_scheme, find_unlisted
from interleaved_assets.io.tar.limits import LIMITS, TarLimits
from interleaved_assets.model.errors import ErrorPolicy, SettingsError
from interleaved_assets.model.shown import has_query, has_user
from interleaved_assets.scoring.clip.settings import ClipSettings, is_checkpoint
from interleaved_assets.scoring.settings import ScoringSettings
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.shard_paths import ShardPaths

FILE_NAME = "interleaved.toml"
FILE_VARIABLE = "INTERLEAVED_SETTINGS"
HOME_VARIABLE = "INTERLEAVED_HOME"
"""Environment variable of the Makefile with the folder of the Dagster instance; not a setting."""
ENV_PREFIX = "INTERLEAVED_"
_MIB = 2**20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class PluginSettings(_Section):
    """Modules with scorers and filters of your own; docs/extending.md explains them."""

    modules: tuple[str, ...] = Field(
        default=(),
        description="Modules that register scorers and filters, such as my_team.scorers, imported before the other "
        "sections are checked. Default none.",
    )

    @field_validator("modules")
    @classmethod
    def _imported(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Import the modules, so that the sections that follow know the scorers and filters they register."""
        for name in names:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                raise ValueError(
                    f"{name} cannot be imported: {error}. Install its package into this environment, or add the folder "
                    "it lies in to PYTHONPATH"
                ) from error
            except (ImportError, SyntaxError, ValueError, AssertionError) as error:
                raise ValueError(f"{name} fails while it is imported: {type(error).__name__}: {error}") from error
        return names


class StorageSettings(_Section):
    """Where shards come from and where outputs go."""

    raw_root: str = Field(
        min_length=1,
        default="data/raw",
        description="Folder or URL (s3://…) with the raw tars. Default data/raw, relative to the settings file.",
    )
    output_root: str = Field(
        min_length=1,
        default="data/out",
        description="Folder or URL under which every stage writes. Default data/out, relative to the settings file.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="fsspec storage options for both roots and for other files of their scheme: endpoint, region and "
        "other options that hold no secret. Default none.",
    )

    def options_by_scheme(self) -> StorageOptionsByScheme:
        """:attr:`options` for the schemes of the two roots; other schemes have none."""
        return by_scheme(self.options, (self.raw_root, self.output_root))

    def shard(self, key: str) -> ShardPaths:
        """The paths of the shard with this partition key, with :attr:`options`."""
        return ShardPaths(self.output_root, key, self.options)


class ReadingSettings(_Section):
    """The layout of a document's JSON."""

    sample_id_field: str | None = Field(
        default=None,
        description="JSON field with the document's id. Default none: the member's path without its extension.",
    )
    texts_field: str = Field(
        default="texts", min_length=1, description="JSON field with the list of texts. Default texts."
    )
    images_field: str = Field(
        default="images", min_length=1, description="JSON field with the image tokens. Default images."
    )
    image_member_field: str | None = Field(
        default=None, description="JSON field that names the member holding the frames. Default none: <key>.tiff."
    )
    fields: tuple[str, ...] | None = Field(
        default=None, description="Passthrough fields to keep. Default none: all of them."
    )
    per_image_fields: tuple[str, ...] = Field(
        default=("image_metadata",), description="JSON lists with one entry per image. Default image_metadata."
    )
    per_text_fields: tuple[str, ...] = Field(
        default=(), description="JSON lists with one entry per text. Default none."
    )


class ErrorSettings(_Section):
    """The policy for rows whose bytes could not be fetched."""

    on_materialize_error: ErrorPolicy = Field(
        default="error",
        description="error fails the shard, warn keeps the row with its error, drop_row and drop_sample drop it or its "
        "sample and list the drops in the ledger. Default error.",
    )
    max_error_rate: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of a shard's rows with materialization errors above which its check fails as an ERROR, "
        "0 to 1; below it the check warns. Default 1.",
    )


class RunSettings(_Section):
    """Size of runs, parallelism and memory."""

    shards_per_run: int = Field(
        default=100, ge=1, le=10_000, description="Most shards in one run of a backfill. Default 100."
    )
    storage_tries: int = Field(
        default=4,
        ge=1,
        le=20,
        description="Attempts at a shard while the storage does not answer, with pauses up to 30 s. Default 4.",
    )
    parallel_shards: int = Field(default=2, ge=1, le=256, description="Shards a step works on at once. Default 2.")
    max_batch_bytes: ByteSize = Field(
        default=ByteSize(128 * _MIB),
        ge=_MIB,
        description="Bytes of rows held at once per shard, as a number or with a unit (128MiB), at least 1 MiB. "
        "Default 128 MiB (134217728).",
    )
    keep_days: int = Field(
        default=90,
        ge=1,
        description="Days after which a run is deleted if all of its results were replaced by later runs. Default 90.",
    )
    executor: Literal["in_process", "multiprocess", "ray", "k8s"] = Field(
        default="in_process",
        description="Where steps run: in_process, one process for the run; multiprocess, one for each step; ray, a "
        "Ray cluster; k8s, a Kubernetes job for each step. Default in_process.",
    )


class LimitSettings(_Section):
    """What a raw shard may ask for; final tars are held to the same, so that they can be read."""

    max_member_bytes: ByteSize = Field(
        default=ByteSize(LIMITS.max_member_bytes),
        ge=_MIB,
        description="Bytes of one member or image; a larger one is not read and its row gets the error "
        "member_too_large. At least 1 MiB. Default 1 GiB (1073741824).",
    )
    max_document_bytes: ByteSize = Field(
        default=ByteSize(LIMITS.max_document_bytes),
        ge=_MIB,
        description="Bytes of one JSON; a larger one is kept as it is, its row with the error document_too_large. At "
        "least 1 MiB. Default 64 MiB (67108864).",
    )
    max_sample_bytes: ByteSize = Field(
        default=ByteSize(LIMITS.max_sample_bytes),
        ge=_MIB,
        description="Bytes that the rows of one sample may take together; images beyond it get the error "
        "sample_too_large. At least 1 MiB. Default 512 MiB (536870912).",
    )
    max_columns: int = Field(
        default=LIMITS.max_columns,
        ge=1,
        description="Passthrough columns of one shard; a document that would bring more gets the error "
        "document_too_large. Default 10000.",
    )
    max_unpacked_bytes: ByteSize = Field(
        default=ByteSize(LIMITS.max_unpacked_bytes),
        ge=_MIB,
        description="Bytes that a compressed raw shard may unpack to on temporary disk; a larger one fails. At least "
        "1 MiB. Default 2 GiB (2147483648).",
    )

    def for_tars(self) -> TarLimits:
        """The limits as reader and writer of tars take them."""
        return TarLimits(**{name: int(getattr(self, name)) for name in TarLimits._fields})


class WatchSettings(_Section):
    """How the sensor looks for new and changed shards."""

    enabled: bool = Field(
        default=False,
        description="Whether both sensors and the schedules daily_report and check_raw_root are on from the start; "
        "else they are turned on in the UI. Default false.",
    )
    interval_seconds: int = Field(
        default=60, ge=5, le=86_400, description="Seconds between two ticks of the sensors. Default 60."
    )
    quiet_seconds: float = Field(
        default=60, ge=0, description="Seconds a shard must stay unchanged before it is taken as complete. Default 60."
    )
    nightly: str = Field(
        default="0 2 * * *",
        description="Time of the nightly schedule, as cron in UTC. Default 0 2 * * *.",
    )
    max_per_tick: int = Field(
        default=400,
        ge=1,
        le=500,
        description="New or changed shards reported in one tick; the rest waits for the next. Default 400.",
    )
    max_tick_seconds: float = Field(
        default=30,
        gt=0,
        le=50,
        description="Seconds that a tick may take to hash new or changed local shards; the rest waits for the next. At "
        "most 50: Dagster ends a tick after 60. Default 30.",
    )


class CheckSettings(_Section):
    """Bounds of the checks. No stage depends on them: changing one makes nothing stale."""

    min_keep_rate: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of a shard's rows, and of its images, that selection has to keep, 0 to 1; below it the "
        "check fails as an ERROR, and the report has a warning for the whole data set. 0 turns it off. Default 0.05.",
    )
    max_keep_rate: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of a shard's rows that selection may keep, 0 to 1; above it the check warns. Default 1.",
    )
    max_keep_rate_distance: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Largest distance of a shard's share of kept rows from the median of other shards, 0 to 1; above "
        "it the check warns. 1 turns the comparison off. Default 0.3.",
    )
    other_shards: int = Field(
        default=200,
        ge=0,
        le=10_000,
        description="Other shards whose records a step reads for that median, evenly chosen, besides its own shards. "
        "Default 200.",
    )
    min_other_shards: int = Field(
        default=5,
        ge=1,
        description="Fewest other shards for that comparison; with fewer there is none. Default 5.",
    )
    max_raw_age_hours: float | None = Field(
        default=None,
        gt=0,
        description="Hours since the newest raw shard landed, after which the check raw_root_fresh warns. Default "
        "none: no limit.",
    )
    raw_root_cron: str = Field(
        default="0 * * * *",
        description="Time of the check raw_root_fresh, as cron in UTC. Default 0 * * * *, every hour.",
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.min_keep_rate > self.max_keep_rate:
            raise ValueError(
                f"min_keep_rate {self.min_keep_rate} is above max_keep_rate {self.max_keep_rate}: no shard could pass"
            )
        return self


class Settings(BaseSettings):
    """All settings, one attribute per section of the file."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    # the first field, because fields are validated in this order
    plugins: PluginSettings = Field(default_factory=PluginSettings, description="Modules with own scorers and filters.")
    storage: StorageSettings = Field(default_factory=StorageSettings, description="Roots of input and output.")
    reading: ReadingSettings = Field(default_factory=ReadingSettings, description="Layout of the documents' JSON.")
    errors: ErrorSettings = Field(default_factory=ErrorSettings, description="Policy for rows that cannot be read.")
    run: RunSettings = Field(default_factory=RunSettings, description="Size of runs, parallelism, memory.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="What a raw shard may ask for.")
    watch: WatchSettings = Field(default_factory=WatchSettings, description="Sensor over the raw root.")
    checks: CheckSettings = Field(default_factory=CheckSettings, description="Bounds that shards are checked against.")
    scoring: ScoringSettings = Field(default_factory=ScoringSettings, description="What is measured, and how.")
    clip: ClipSettings = Field(default_factory=ClipSettings, description="CLIP model, heads and device.")
    selection: SelectionSettings = Field(default_factory=SelectionSettings, description="Filters and thresholds.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def settings_path() -> Path:
    """The settings file in force.

    Raises:
        SettingsError: there is none.
    """
    if named := os.environ.get(FILE_VARIABLE):
        candidates = [Path(named)]
    else:
        candidates = [Path.cwd() / FILE_NAME]
        if home := os.environ.get("DAGSTER_HOME"):
            candidates.append(Path(home) / FILE_NAME)
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    raise SettingsError(
        f"no settings file: looked for {', '.join(str(path) for path in candidates)}. "
        f"Start from the folder that has {FILE_NAME}, or name it in {FILE_VARIABLE}."
    )


def load_settings(path: Path | str | None = None) -> Settings:
    """Read, check and complete the settings; relative paths are made absolute from the file's folder.

    Raises:
        SettingsError: no such file, not TOML, an unknown key or variable, a wrong type, a value out of range or a
            secret; the message names file, key and what is allowed.
    """
    file = settings_path() if path is None else Path(path)
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"no settings file {file}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None
    _refuse_unknown_variables()
    try:
        settings = Settings(**raw)
    except SourceError as error:
        raise SettingsError(
            f"environment: {error}. Lists and sections are given as JSON there, as in "
            """INTERLEAVED_SELECTION__ORDER='["sharpness", "qr"]'"""
        ) from error
    except ValidationError as error:
        lines = "\n".join(f"  {_describe(problem)}" for problem in error.errors())
        raise SettingsError(f"{file}:\n{lines}") from None  # its traceback would repeat what was given
    _refuse_secrets(settings, file)
    storage = settings.storage.model_copy(
        update={name: _absolute(getattr(settings.storage, name), file.parent) for name in ("raw_root", "output_root")}
    )
    if _is_within(storage.output_root, storage.raw_root) or _is_within(storage.raw_root, storage.output_root):
        raise SettingsError(
            f"{file}: storage.raw_root {storage.raw_root} and storage.output_root {storage.output_root} "
            "lie inside one another: outputs would be read as new shards. Use separate folders."
        )
    return settings.model_copy(update={"storage": storage, "clip": _with_absolute_files(settings.clip, file.parent)})


def _refuse_secrets(settings: Settings, file: Path) -> None:
    """Raise where a URL may contain a secret, or an option is not known to be public; the message has no value."""
    for name, value in _texts(settings.model_dump()):
        # the scheme may be left out of an option that names a host
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
    """Every text in the settings, also inside tables and lists, with the name of its setting."""
    if isinstance(values, str):
        yield name, values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from _texts(value, f"{name}.{key}" if name else str(key))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _texts(value, name)


def _with_absolute_files(clip: ClipSettings, folder: Path) -> ClipSettings:
    files = {}
    if clip.model_config_path is not None:
        files["model_config_path"] = _absolute(clip.model_config_path, folder)
    if is_checkpoint(clip.pretrained):
        files["pretrained"] = _absolute(clip.pretrained, folder)
    heads = {name: head.model_copy(update={"path": _absolute(head.path, folder)}) for name, head in clip.heads.items()}
    return clip.model_copy(update={**files, "heads": heads})


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")


def _absolute(root: str, folder: Path) -> str:
    protocol, _ = fsspec.core.split_protocol(root)
    if protocol is None:
        root = os.path.normpath(folder.resolve() / Path(root).expanduser())
    return root.rstrip("/") or "/"


def _describe(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "the file"
    if problem["type"] == "extra_forbidden":
        known = _known_keys(problem["loc"][:-1])
        return f"{key}: unknown key; allowed here: {', '.join(known)}"
    field = _field_at(problem["loc"])
    about = f" ({field.description})" if field is not None and field.description else ""
    return f"{key}: {problem['msg']}{_given(problem)}{about}"


def _given(problem: Any) -> str:
    """The value given, where it cannot be a secret; its type for texts, lists and storage."""
    value, field = problem["input"], _field_at(problem["loc"])
    is_text = field is not None and field.annotation in (str, str | None)
    if problem["loc"][:1] in ((), ("storage",)) or is_text or not isinstance(value, str | int | float | bool | None):
        return f", got a {type(value).__name__}"
    return f", got {value!r}"


def _field_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    model: Any = Settings
    field = None
    for part in location:
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return field
        field = fields[part]
        model = field.annotation
    return field


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    field = _field_at(location)
    model: Any = Settings if field is None else field.annotation
    return sorted(getattr(model, "model_fields", {}))


def _refuse_unknown_variables() -> None:
    """Refuse misspelt variables, which would otherwise have no effect."""
    for variable in sorted(os.environ):
        if not variable.startswith(ENV_PREFIX) or variable in (FILE_VARIABLE, HOME_VARIABLE):
            continue
        location = tuple(variable.removeprefix(ENV_PREFIX).lower().split("__"))
        field = _field_at(location[:1])
        if field is None or (len(location) > 1 and location[1] not in _known_keys(location[:1])):
            raise SettingsError(f"{variable}: no such setting; variables are {ENV_PREFIX}<SECTION>__<KEY>")
