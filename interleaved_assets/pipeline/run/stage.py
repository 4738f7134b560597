"""Definition of a stage: its inputs, the settings it depends on, the function that does its work, and its results."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import pyarrow as pa

from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.model.columns import BINARY_SIZE, IMAGE_KEY, Column
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource
from interleaved_assets.pipeline.run.check import ShardCheck
from interleaved_assets.pipeline.run.raw_images import with_raw_images
from interleaved_assets.pipeline.run.record import Facts, OutputFile, Record
from interleaved_assets.scoring.protocol.scorer import Range
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import ShardPaths

Result = TypeVar("Result")

DEVICE_WAIT: Final = "device_wait_seconds"
"""Note of a record: seconds that the device of the stage waited for decoded images."""


@dataclass(frozen=True)
class ShardTask:
    """One shard at one stage: the argument of a stage's function."""

    key: str
    settings: Settings
    paths: ShardPaths
    raw: RawShard | None = None
    """The raw shard, for the stage that reads it."""
    read: Mapping[str, Record] = field(default_factory=dict)
    """Records of the input stages, by stage, at the time of the comparison with the shard's own record."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Version of each file that the settings name for this stage, such as a checkpoint, by the setting."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that compute values of the output, by name."""
    recorded: Record | None = None
    """The shard's own record at the time of that comparison; None if there was none. Its outputs may be gone."""
    source: RawSource | None = None
    """The raw shard with the version of its content."""
    score_inputs: tuple[str, ...] = ()
    """The input stages that score images."""

    @property
    def options(self) -> Mapping[str, object]:
        return self.settings.storage.options

    @property
    def rows_input(self) -> str:
        """The first input stage, whose rows the work reads."""
        return next(iter(self.read))

    def rows_of(
        self,
        stage: str,
        columns: Iterable[str] | None = None,
        most_bytes: int | None = None,
        *,
        with_bytes: bool = True,
    ) -> Iterator[pa.Table]:
        """Yield the rows in the output of ``stage``, in tables of whole samples of at most ``run.max_batch_bytes``.

        Images that the rows name in the raw shard are read from it, unless ``with_bytes`` is false.
        """
        allowed = self.settings.run.max_batch_bytes
        bound = allowed if most_bytes is None else min(allowed, most_bytes)
        wanted = None if columns is None else {*columns, "sample_id"}
        record = self.read[stage]
        is_referenced = with_bytes and record.names_images and (wanted is None or "binary_content" in wanted)
        needed = wanted | {"position", "source_ref", BINARY_SIZE} if is_referenced and wanted else wanted
        tables = read_parquet_shard(
            self.paths.output(stage), columns=needed, max_batch_bytes=bound, storage_options=self.options
        )
        if not is_referenced:
            return tables
        filled = with_raw_images(tables, self.key, record.source, self.settings.storage, bound)
        if wanted is None:
            return filled
        return (table.select([name for name in table.column_names if name in wanted]) for table in filled)


class Work(Facts):
    """The result of a stage's function for the shard that it has written."""

    outputs: dict[str, OutputFile]
    data_version: str | None = None
    """Hash of inputs, model and settings if the bytes may differ from device to device; else None."""


@dataclass(frozen=True)
class StageOutcome:
    """A shard whose outputs are up to date; ``unchanged`` if they were so before, so that no work was done."""

    record: Record
    unchanged: bool
    seconds: float
    shown: Any = None
    """The result of what was called for the shard after the stage, such as drawing its pictures."""


class ShardResult(NamedTuple, Generic[Result]):
    """A shard at one stage: the result of the work on it, or the error with which it failed."""

    key: str
    stage: str
    result: Result | Exception
    host: str = ""
    """Address of the cluster's node that did the work; empty for this process."""
    queue_seconds: float = 0.0
    """Seconds between giving the shard to the cluster and the start of the work on it."""


RunOne = Callable[[ShardTask], Work]
"""A function that reads the inputs of one shard and writes its outputs."""
RunTogether = Callable[[Iterator[ShardTask], Settings], Iterator[tuple[str, Work | InterleavedError]]]
"""A function that does the same for many shards with one call, for work that fills a device. It yields each shard's key
with its work or its error, as soon as the shard is done. An exception ends the work on all shards."""


class SourceColumn(NamedTuple):
    """A column of an input; for raw shards, a field of the documents' JSON."""

    stage: str
    column: str


def columns_of(stage: str, *columns: str) -> tuple[SourceColumn, ...]:
    """Return these columns of the output of ``stage``."""
    return tuple(SourceColumn(stage, column) for column in columns)


def scored_from(rows: str, column: str, error_column: str, *read: str) -> tuple[SourceColumn, ...]:
    """Return the columns of the stage ``rows`` that a column of scores is made from; ``read`` are those it measures."""
    if column in IMAGE_KEY:
        return columns_of(rows, column)
    return columns_of(rows, *read, *(["materialize_error"] if column == error_column else []))


class StageOutput(NamedTuple):
    """The kind of output that a stage stores for a shard. Lists of stages are derived from it."""

    kind: Literal["rows", "tars", "image scores", "document scores", "images", "side table"]
    """Rows as Parquet and training tars follow each other: each has a ledger of the rows that were there before it.
    A side table is one that no stage reads, such as a hash of each image."""
    others: tuple[str, ...] = ()
    """Roles of more tables that it writes for people to read, besides its ledger."""
    hides_dropped_texts: bool = False
    """True if the texts that it drops may be personal data, which pages and Dagster's events should not keep."""
    keeps_images: bool = False
    """True if a stage with rows leaves those of images as they were, so that nothing scores the images again."""


class StageDisplay(NamedTuple):
    """The appearance of a stage in the UI."""

    description: str
    group: str
    """The group of the asset."""
    kinds: frozenset[str]
    """The badges of the asset."""


PLAIN: Final = StageDisplay("", "", frozenset())
SIDE_TABLE: Final = StageOutput("side table")


@dataclass(frozen=True)
class Stage:
    """One stage of the DAG with all its properties.

    Attributes:
        name: also the name of the asset and of the folder of the outputs.
        inputs: the stages whose outputs it reads; the first is the one whose rows it reads.
        score_inputs: those of the inputs that score images.
        connect: returns it with the inputs that it has under the settings, after the stages before it; None if it is
            off.
        output: the kind of output that it stores; by default a table that no stage reads.
        version: to be raised when a change of code changes the output.
        settings: returns the settings that the output depends on, and no others.
        run: does the work for one shard; None if ``together`` is given.
        together: does the work for many shards with one call; None if ``run`` is given.
        prepare: raises InterleavedError if something is missing without which no shard can be made, such as a package.
            It is called once before the first shard of a run is read.
        files: returns the version of each file that those settings name, by the setting (``clip.pretrained``). The
            files are inputs: they are read when the stage executes, and the code version does not depend on them.
        source_inputs: returns, for the URI of a raw shard, the versions of what reads it, by name. They are inputs of
            that shard alone: another version of a format makes only the shards of that format stale.
        packages: returns the names of the distributions that compute values of the output. Their versions are recorded,
            and the code version does not depend on them, since not every machine has them.
        checks: judge each shard after the stage.
        columns: returns the columns of its table under the settings; none if its output is no table of known columns.
        ranges: returns the range of the values of columns that have one.
        made_from: returns the input columns that the values of a column are made from.
        decided_by: returns the input columns that decide which rows the output has; none if it has all.
        display: its appearance in the UI.
    """

    name: str
    inputs: tuple[str, ...] = ()
    score_inputs: tuple[str, ...] = field(default=(), kw_only=True)
    version: int = 1
    settings: Callable[[Settings], dict[str, object]] = lambda _: {}
    run: RunOne | None = None
    together: RunTogether | None = None
    prepare: Callable[[Settings], object] = lambda _: None
    files: Callable[[Settings], Mapping[str, str]] = lambda _: {}
    source_inputs: Callable[[str, Settings], Mapping[str, str]] = lambda *_: {}
    packages: Callable[[Settings], Collection[str]] = lambda _: ()
    checks: tuple[ShardCheck, ...] = ()
    columns: Callable[[Settings], Sequence[Column]] = lambda _: ()
    ranges: Callable[[Settings], Mapping[str, Range]] = lambda _: {}
    made_from: Callable[[str, Settings], tuple[SourceColumn, ...]] = lambda *_: ()
    decided_by: Callable[[Settings], tuple[SourceColumn, ...]] = lambda _: ()
    display: StageDisplay = PLAIN
    output: StageOutput = SIDE_TABLE
    connect: "Callable[[Stage, Settings, Sequence[Stage]], Stage | None]" = lambda stage, *_: stage

    def code_version(self, settings: Settings) -> str:
        """Return ``<version>-<hash of settings>``, which changes when the stage's code or one of its settings does."""
        return version_with_settings(self.version, self.settings(settings))


def last_with_rows(stages: Iterable[Stage]) -> str:
    """Return the name of the last of these stages that stores rows."""
    return [stage.name for stage in stages if stage.output.kind == "rows"][-1]


def last_with_images(stages: Iterable[Stage]) -> str:
    """Return the name of the last of these stages that stores rows of images which differ from those before it."""
    return last_with_rows(stage for stage in stages if not stage.output.keeps_images)


def with_image_scores(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Return those of these stages that score images."""
    return tuple(stage for stage in stages if stage.output.kind == "image scores")


def version_with_settings(version: int, settings: Mapping[str, object]) -> str:
    """Return ``<version>-<hash of settings>``: a code version that changes with ``settings``, which JSON can hold."""
    text = json.dumps(settings, sort_keys=True)
    return f"{version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
