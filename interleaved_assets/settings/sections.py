"""The sections of ``interleaved.toml``: every setting, typed, with its unit, its default and its bounds."""

import importlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, FiniteFloat, create_model, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from interleaved_assets.export.settings import ExportSettings
from interleaved_assets.io.formats.registry import all_formats, format_sections
from interleaved_assets.io.rows.processors import worker_processes
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.options import StorageOptionsByScheme, by_scheme, options_of
from interleaved_assets.io.tar.layout import Layout, ShardLayout
from interleaved_assets.model.errors import ErrorPolicy
from interleaved_assets.rewriting.settings import RewritingSettings
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.scoring.protocol.settings import DocumentSettings, ScoringSettings
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings.shard_paths import ShardPaths

ENV_PREFIX = "INTERLEAVED_"
_MIB = 2**20
EXECUTORS = ("in_process", "multiprocess", "ray", "k8s")
Share = Annotated[float, Field(ge=0, le=1)]
_MOST = 2**31 - 1
_MOST_BYTES = 2**62
Bytes = Annotated[ByteSize, Field(ge=_MIB, le=_MOST_BYTES)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)


class PluginSettings(_Section):
    """Modules with scorers, filters and formats of your own; docs/extending.md explains them."""

    modules: tuple[str, ...] = ()
    """Modules that register scorers, filters and formats, such as my_team.scorers, imported before the other sections
    are checked. Default none."""

    @field_validator("modules")
    @classmethod
    def _imported(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Import the modules, so that the sections that follow know what they register."""
        for name in names:
            if name.startswith("."):
                raise ValueError(f"{name} is relative: give the module its full name, such as my_team.scorers")
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                raise ValueError(
                    f"{name} cannot be imported: {error}. Install its package into this environment, or add the folder "
                    "it lies in to PYTHONPATH"
                ) from error
            except (Exception, SystemExit) as error:
                raise ValueError(f"{name} fails while it is imported: {type(error).__name__}: {error}") from error
        return names


class StorageSettings(_Section):
    """The roots of raw shards and of outputs."""

    raw_root: str = Field(min_length=1, default="data/raw")
    """Folder or URL (s3://…) with the raw shards; a relative path begins at the settings file. Default data/raw."""
    output_root: str = Field(min_length=1, default="data/out")
    """Folder or URL under which every stage writes; a relative path begins at the settings file. Default data/out."""
    raw_formats: tuple[str, ...] = ()
    """Formats of the files below the raw root that are shards, such as ["tar"]; files of other formats, for example the
    Parquet that image downloaders put beside their tars, are ignored then. Default none: all formats."""
    bundles: dict[str, Annotated[int, Field(ge=1, le=100_000)]] = Field(default_factory=dict)
    """Formats of small files, and the number of shards that those of each folder form, such as {pdf = 64}; a file
    belongs to one by the hash of its name, so that another file changes one shard. {images = 16} makes folders of
    images, with captions beside them, shards. Default none: each file is a shard."""
    image_bytes: Literal["copied", "referenced"] = "copied"
    """copied: normalized and filtered hold the bytes of images. referenced: their rows name each image in the raw tar,
    or the web archive, which has to stay where it is, and images are read from there. Images of compressed tars and
    of other formats are always copied. Final tars are the same. Default copied."""
    options: dict[str, Any] = Field(default_factory=dict)
    """fsspec storage options for both roots and for other files of their scheme: endpoint, region and other options
    that hold no secret. Default none."""

    @field_validator("raw_root", "output_root")
    @classmethod
    def _names_a_place(cls, root: str) -> str:
        if "\0" in root:
            raise ValueError("no path has the character NUL")
        if "://" in root and root.rstrip("/").endswith(":"):
            raise ValueError(f"{root} names a scheme alone: add a bucket or a path")
        return root

    @field_validator("raw_formats")
    @classmethod
    def _known_formats(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = [one.name for one in all_formats()]
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{', '.join(unknown)} is no format of raw shards; there are {', '.join(known)}")
        return names

    @field_validator("bundles")
    @classmethod
    def _can_be_bundled(cls, bundles: dict[str, int]) -> dict[str, int]:
        known = [one.name for one in all_formats() if one.read_files is not None]
        if unknown := [name for name in bundles if name not in known]:
            raise ValueError(f"files of {', '.join(unknown)} cannot be bundled; those of {', '.join(known)} can")
        return bundles

    def options_by_scheme(self) -> StorageOptionsByScheme:
        """Return :attr:`options` for the schemes of the two roots; other schemes have none."""
        return by_scheme(self.options, (self.raw_root, self.output_root))

    def options_for(self, uri: str) -> Mapping[str, Any]:
        """Return :attr:`options` if ``uri`` has the scheme of one of the two roots, else none."""
        return options_of(uri, self.options_by_scheme()) or {}

    def shard(self, key: str) -> ShardPaths:
        """Return the paths of the shard with this partition key, with :attr:`options`."""
        return ShardPaths(self.output_root, key, self.options)


class ReadingSettings(_Section):
    """The layout of raw shards: the form of a sample, and the fields of a document's JSON.

    Each format with settings of its own has a table in it, ``[reading.warc]`` for example: :meth:`sections`.
    """

    model_config = ConfigDict(extra="allow")

    layout: Layout = "interleaved"
    """interleaved: each sample is a JSON that lists its texts and images. images: each sample is the members with the
    same name up to the first dot, such as <key>.jpg, <key>.txt and <key>.json, as in the tars of image_export and of
    other image data sets. detected: the members of each tar tell, so that one raw root may hold both. Default
    interleaved."""
    sample_id_field: str | None = None
    """JSON field with the document's id. Default none: the member's path without its extension."""
    texts_field: str = Field(default="texts", min_length=1)
    """JSON field with the list of texts. Default texts."""
    images_field: str = Field(default="images", min_length=1)
    """JSON field with the image tokens. Default images."""
    image_member_field: str | None = None
    """JSON field that names the member holding the frames. Default none: <key>.tiff."""
    fields: tuple[str, ...] | None = None
    """Passthrough fields to keep. Default none: all of them."""
    per_image_fields: tuple[str, ...] = ("image_metadata",)
    """JSON lists with one entry per image. Default image_metadata."""
    per_text_fields: tuple[str, ...] = ()
    """JSON lists with one entry per text. Default none."""

    @model_validator(mode="before")
    @classmethod
    def _with_sections(cls, given: Any) -> Any:
        """Check the tables of the registered formats, each with its model, and add those that are not given."""
        if not isinstance(given, Mapping):
            return given
        own = {name: value for name, value in given.items() if name in cls.model_fields}
        tables = _format_tables(tuple(format_sections().items()))
        checked = tables.model_validate({name: value for name, value in given.items() if name not in own})
        return own | {name: getattr(checked, name) for name in type(checked).model_fields}

    def for_tars(self) -> ShardLayout:
        """Return the layout as the reader of tars takes it."""
        return ShardLayout(**self.model_dump(include=set(type(self).model_fields)))

    def sections(self) -> dict[str, BaseModel]:
        """Return the settings of formats that have their own, by the name of their section."""
        return dict(self.model_extra or {})


@cache
def _format_tables(sections: tuple[tuple[str, type[BaseModel]], ...]) -> type[BaseModel]:
    fields: dict[str, Any] = {name: (model, Field(default_factory=model)) for name, model in sections}
    return create_model("Sections", __config__=ConfigDict(extra="forbid"), **fields)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section; :class:`ReadingSettings` has the tables of the registered formats too."""
    if model is not ReadingSettings:
        return model.model_fields
    tables = {name: FieldInfo(annotation=table, default_factory=table) for name, table in format_sections().items()}
    return model.model_fields | tables


class ErrorSettings(_Section):
    """The policy for rows whose bytes could not be fetched."""

    on_materialize_error: ErrorPolicy = "error"
    """error fails the shard, warn keeps the row with its error, drop_row and drop_sample drop it or its sample and list
    the drops in the ledger. Default error."""
    max_error_rate: Share = 1.0
    """Share of a shard's rows with materialization errors above which its check fails as an ERROR, 0 to 1; below it the
    check warns. Default 1."""


class PublishSettings(_Section):
    """Requirements for a final tar. A shard that does not meet them fails before any part of it is published.

    No stage depends on the bounds: a changed bound applies to shards that are made after the change.
    """

    max_empty_samples: Share = 0.9
    """Largest share of a shard's samples that may have neither a text nor an image, 0 to 1; above it the shard fails,
    since its layout is not the one that [reading] describes. 1 turns it off. Default 0.9."""
    max_unreferenced_bytes: Share = 0.5
    """Largest share of members that no document names in the bytes of a shard's texts, images and such members, 0 to 1;
    above it the shard fails. 1 turns it off. Default 0.5."""
    max_lost_samples: Share = 0.5
    """Largest share of a shard's samples that may lose rows to errors in one stage, by drop_row or drop_sample, 0 to 1;
    above it the shard fails. 1 turns it off. Default 0.5."""
    accept_incomplete: bool = False
    """If true, the readable part of a tar is used that is cut or damaged, has no end mark, or has data after it; else
    the shard fails. Default false."""
    unreferenced_images: bool = False
    """If true, images that no document names, and no filter has judged, are copied to filtered and final_tars; else
    they are counted and stay in normalized. Default false."""


class RunSettings(_Section):
    """Size of runs, parallelism and memory."""

    shards_per_run: int = Field(default=100, ge=1, le=10_000)
    """Most shards in one run of a backfill. Default 100."""
    storage_tries: int = Field(default=4, ge=1, le=20)
    """Attempts at a shard while the storage does not answer, with pauses up to 30 s. Default 4."""
    parallel_shards: int | None = Field(default=None, ge=1, le=256)
    """Shards a step works on at once, each in a worker process; with 1, in the process of the run. On a Ray cluster,
    one for each CPU. Default none: one for two processors that the process may use, from 2 to 8."""
    max_shard_seconds: float = Field(default=3600, gt=0, le=1e9)
    """Seconds that a stage may take for one shard; then the shard fails, its worker is ended, and the others go on.
    clip_scores has the limit on a Ray cluster only. Default 3600."""
    max_batch_bytes: Bytes = ByteSize(128 * _MIB)
    """Bytes of rows held at once per shard, as a number or with a unit (128MiB), at least 1 MiB. Default 128 MiB
    (134217728)."""
    keep_days: int = Field(default=90, ge=1, le=36_500)
    """Days after which a run is deleted if all of its results were replaced by later runs. Default 90."""
    pictures: bool = True
    """If true, each shard gets plots and small pictures in the metadata of filtered, at most 12 kB, and an HTML page
    with more of them. Default true."""
    executor: str = "in_process"
    """Executor of the steps: in_process, one process for the run; multiprocess, one for each step; ray, the shards of a
    step on a Ray cluster; k8s, a Kubernetes job for each step; module:attribute, such as my_team.executors:celery, an
    executor of your own, which reads its tags on the GPU step. Default in_process."""

    @property
    def shards_at_once(self) -> int:
        """Return ``parallel_shards``, or the number that fits this machine."""
        return self.parallel_shards or worker_processes()

    @field_validator("executor")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if name not in EXECUTORS and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
            raise ValueError(
                f"{name!r} is neither {', '.join(EXECUTORS)} nor module:attribute, such as my_team.executors:celery"
            )
        return name


class LimitSettings(_Section):
    """Limits of a raw shard. Final tars have the same limits, so that they can be read."""

    max_member_bytes: Bytes = ByteSize(LIMITS.max_member_bytes)
    """Bytes of one member or image; a larger one is not read and its row gets the error member_too_large. At least 1
    MiB. Default 1 GiB (1073741824)."""
    max_document_bytes: Bytes = ByteSize(LIMITS.max_document_bytes)
    """Bytes of one JSON; a larger one is kept as it is, and its row gets the error document_too_large. At least 1 MiB.
    Default 64 MiB (67108864)."""
    max_sample_bytes: Bytes = ByteSize(LIMITS.max_sample_bytes)
    """Bytes of the rows of one sample together; images beyond it get the error sample_too_large. At least 1 MiB.
    Default 512 MiB (536870912)."""
    max_columns: int = Field(default=LIMITS.max_columns, ge=1, le=_MOST)
    """Passthrough columns of one shard; a document that would add more gets the error document_too_large. Default 1000.
    """
    max_unpacked_bytes: Bytes = ByteSize(LIMITS.max_unpacked_bytes)
    """Bytes of a compressed raw shard when unpacked on temporary disk; a larger one fails. At least 1 MiB. Default 2
    GiB (2147483648)."""

    def for_tars(self) -> TarLimits:
        """Return the limits as reader and writer of tars take them."""
        return TarLimits(**{name: int(getattr(self, name)) for name in TarLimits._fields})


class FinalTarsSettings(_Section):
    """The size of a final tar; the final tar of a shard that exceeds it is split into several."""

    max_samples_per_tar: int | None = Field(default=None, ge=1, le=_MOST)
    """Most samples in one final tar; those of a larger shard are split evenly into tars of at most as many,
    <key>~00000.tar and so on. Default none: one tar a shard."""
    max_tar_bytes: ByteSize | None = Field(default=None, ge=_MIB, le=_MOST_BYTES)
    """Most bytes of one final tar, as a number or with a unit (512MiB), at least 1 MiB; a larger one is split as above.
    A sample that alone takes more gets a tar of its own. Default none: one tar a shard."""

    def bounds(self) -> dict[str, int]:
        """Return the bounds that are set, by name."""
        return {name: int(value) for name, value in self if value is not None}


class PageSettings(_Section):
    """The page with a shard's documents, written after selection. No stage depends on these."""

    enabled: bool = True
    """If true, selection writes pages/<key>.html below the output root for each shard: its documents, with dropped rows
    in their places. Default true."""
    max_documents: int = Field(default=30, ge=1, le=2000)
    """Most documents on a page, about 25 KB each; for a larger shard, documents with dropped rows come first, of every
    reason in turn. interleaved view shows others. Default 30."""


class ServeSettings(_Section):
    """The address at which ``interleaved serve`` shows report, pages and ledgers. No stage depends on it."""

    url: Annotated[str, Field(pattern=r"^(https?://[^\s?#@/]+(/[^\s?#]*)?)?$")] = ""
    """Address of interleaved serve, such as http://127.0.0.1:3010, to which the entries page, report, ledger and record
    in Dagster link; interleaved serve takes its port if it is of this machine. Empty shows the paths of the files.
    Default empty."""


class WatchSettings(_Section):
    """The sensor, which looks for new and changed shards."""

    enabled: bool = False
    """If true, the sensor is on from the start; else it is turned on in the UI. The schedule daily_report is always on.
    Default false."""
    interval_seconds: int = Field(default=60, ge=5, le=86_400)
    """Seconds between two ticks of the sensor. Default 60."""
    quiet_seconds: FiniteFloat = Field(default=60, ge=0)
    """Seconds a shard must stay unchanged before it is taken as complete. Default 60."""
    nightly: str = "0 2 * * *"
    """Time of the nightly schedule, as cron in UTC. Default 0 2 * * *."""
    report: str = "0 6 * * *"
    """Time of the schedule daily_report, which also runs the checks over all shards, as cron in UTC.
    Default 0 6 * * *."""
    max_per_tick: int = Field(default=400, ge=1, le=500)
    """New or changed shards requested in one tick; the rest waits for the next. Default 400."""
    max_tick_seconds: float = Field(default=30, gt=0, le=50)
    """Seconds that a tick may take to hash new or changed local shards; the rest waits for the next. At most 50:
    Dagster ends a tick after 60. Default 30."""


class CheckSettings(_Section):
    """Bounds of the checks. No stage depends on them: changing one makes nothing stale."""

    min_keep_rate: Share = 0.05
    """Share of a shard's rows, and of its images, that selection has to keep, 0 to 1; below it the check fails as an
    ERROR, and the report has a warning for the whole data set. 0 turns it off. Default 0.05."""
    max_keep_rate: Share = 1.0
    """Share of a shard's rows that selection may keep, 0 to 1; above it the check warns. Default 1."""
    max_keep_rate_distance: Share = 0.3
    """Largest distance of a shard's share of kept rows from the median of other shards, 0 to 1; above it the check
    warns. 1 turns the comparison off. Default 0.3."""
    other_shards: int = Field(default=200, ge=0, le=10_000)
    """Other shards whose records a step reads for that median, evenly chosen, besides its own shards. Default 200."""
    min_other_shards: int = Field(default=5, ge=1, le=_MOST)
    """Fewest other shards for that comparison; with fewer there is none. Default 5."""
    max_raw_age_hours: FiniteFloat | None = Field(default=None, gt=0)
    """Hours since the newest raw shard landed, after which the check raw_root_fresh warns. Default none: no limit."""

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

    # plugins is the first field, because fields are validated in this order
    plugins: PluginSettings = Field(
        default_factory=PluginSettings, description="Modules with own scorers, filters and formats."
    )
    storage: StorageSettings = Field(default_factory=StorageSettings, description="Roots of input and output.")
    reading: ReadingSettings = Field(default_factory=ReadingSettings, description="Layout of the documents' JSON.")
    errors: ErrorSettings = Field(default_factory=ErrorSettings, description="Policy for rows that cannot be read.")
    publish: PublishSettings = Field(
        default_factory=PublishSettings, description="Requirements for publishing a shard."
    )
    run: RunSettings = Field(default_factory=RunSettings, description="Size of runs, parallelism, memory.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits of a raw shard.")
    final_tars: FinalTarsSettings = Field(
        default_factory=FinalTarsSettings, description="Size of final tars, beyond which they are split."
    )
    pages: PageSettings = Field(default_factory=PageSettings, description="Pages with the documents of shards.")
    serve: ServeSettings = Field(
        default_factory=ServeSettings, description="Address at which the outputs are shown in a browser."
    )
    watch: WatchSettings = Field(default_factory=WatchSettings, description="Sensor over the raw root.")
    checks: CheckSettings = Field(default_factory=CheckSettings, description="Bounds that shards are checked against.")
    rewriting: RewritingSettings = Field(
        default_factory=RewritingSettings, description="Functions that change or drop texts."
    )
    scoring: ScoringSettings = Field(
        default_factory=ScoringSettings, description="Scores of images, and their options."
    )
    documents: DocumentSettings = Field(
        default_factory=DocumentSettings, description="Scores of documents and their texts, and their options."
    )
    clip: ClipSettings = Field(default_factory=ClipSettings, description="CLIP model, heads and device.")
    selection: SelectionSettings = Field(default_factory=SelectionSettings, description="Filters and thresholds.")
    export: ExportSettings = Field(default_factory=ExportSettings, description="Images as tars with their tables.")

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
