"""The stage ``normalized``: the raw shard as Parquet in the row model."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.raw_versions import is_by_reference, with_raw_version
from interleaved_assets.io.storage import folders_of
from interleaved_assets.io.tar.layout import TEXT_EXTENSION, json_field
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.tar.writer import check_modalities
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.layout_as_expected import LAYOUT
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.raw.bundles import raw_format
from interleaved_assets.pipeline.run.counts import UNREFERENCED_IMAGES, column_facts, write_by_error_policy
from interleaved_assets.pipeline.run.publishable import ContentCounter
from interleaved_assets.pipeline.run.record import RAW_SHARDS, OutputFile
from interleaved_assets.pipeline.run.stage import (
    ShardTask,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    columns_of,
    version_with_settings,
)
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.settings import ReadingSettings, Settings


def normalize(shard: ShardTask) -> Work:
    """Read the raw shard, write ``normalized/<key>.parquet`` and the ledger of the rows that the policy dropped.

    Raises IncompleteShard if the raw shard is cut or too many samples lose rows, and UnexpectedLayout if too few
    samples have content or too many bytes are unreferenced. Raises UnsupportedModality for rows that no tar can hold.
    """
    assert shard.raw is not None
    notes = Counter[str]()
    options = read_options(shard.raw.uri, shard.settings, notes)
    form = raw_format(shard.raw.uri, shard.settings.storage)
    by_reference = form.can_reference and shard.settings.storage.image_bytes == "referenced"
    options = options._replace(by_reference=by_reference)
    batches = _tar_can_hold(form.tables(shard.raw.uri, options, list(shard.raw.files)), shard.raw.uri)
    content = ContentCounter()
    if (first := next(batches, None)) is None:
        raise ShardError(
            f"{shard.raw.uri}: the format {form.name!r} yields no table; it has to yield one without rows for a shard "
            "without samples"
        )
    schema = first.schema
    if is_by_reference(schema):
        assert shard.source is not None
        schema = with_raw_version(schema, shard.raw.uri, shard.raw.size, shard.source.version)
    with (
        parquet_shard(shard.paths.ledger(NORMALIZED), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.output(NORMALIZED), schema, storage_options=shard.options) as rows_file,
    ):
        counting = content.counting(itertools.chain([first], batches))
        facts, dropped = write_by_error_policy(counting, shard, NORMALIZED, rows_file.write)
        content.check_layout(shard, facts.counts_in.samples, facts.errors)
        ledger_file.write(dropped)
    return Work(
        outputs={"rows": OutputFile.of(rows_file.output), "ledger": OutputFile.of(ledger_file.output)},
        **facts.model_dump(exclude={"columns", "required", "notes", "counted"}),
        **column_facts(rows_file.schema),
        counted=facts.counted | content.counted,
        notes={**notes, UNREFERENCED_IMAGES: content.counted[UNREFERENCED_IMAGES]},
    )


def _tar_can_hold(batches: Iterator[pa.Table], uri: str) -> Iterator[pa.Table]:
    """Yield ``batches``; raise UnsupportedModality here, and not stages later, for rows that no tar can hold."""
    for table in batches:
        if not isinstance(table, pa.Table):  # from a format of a plugin
            raise ShardError(f"{uri}: its format yields a {type(table).__name__} and not a table of the row model")
        check_modalities(table, uri)
        yield table


def read_options(uri: str, settings: Settings, notes: Counter[str] | None = None) -> ReadOptions:
    """Return how the settings say that a shard file is read, with its bytes; ``notes`` as for ``read_shard``."""
    return ReadOptions(
        layout=settings.reading.for_tars(),
        max_batch_bytes=settings.run.max_batch_bytes,
        materialize=True,
        storage_options=settings.storage.options_for(uri),
        # a raw shard may be a link to a file elsewhere, and rows of normalized have locators in raw shards
        allowed_roots=[settings.storage.raw_root, *folders_of([uri])],
        limits=settings.limits.for_tars(),
        accept_incomplete=settings.publish.accept_incomplete,
        notes=notes,
        sections=settings.reading.sections(),
    )


RAW_KEY: Final = "__key__"
"""Name that webdataset gives to the common part of the member names of a sample."""


def _settings(settings: Settings) -> dict[str, object]:
    """Return the layout, the policy and the limits beyond which rows get errors.

    The size of batches changes no output. Neither do ``max_unpacked_bytes`` and the bounds of ``[publish]``: a shard
    that exceeds one of them fails.
    """
    # the default layout is left out, so that records from before the setting existed stay valid
    by_default = {"layout"} if settings.reading.layout == "interleaved" else set[str]()
    by_reference = {"image_bytes": "referenced"} if settings.storage.image_bytes == "referenced" else {}
    return {
        **by_reference,
        "reading": settings.reading.model_dump(mode="json", exclude=by_default | set(settings.reading.sections())),
        "on_materialize_error": settings.errors.on_materialize_error,
        "limits": settings.limits.model_dump(mode="json", exclude={"max_unpacked_bytes"}),
    }


def _format_version(uri: str, settings: Settings) -> dict[str, str]:
    """Return the version of the format of the raw shard, with its settings."""
    form = raw_format(uri, settings.storage)
    if not form.version:
        return {}
    section = settings.reading.sections().get(form.section or "")
    own = {} if section is None else section.model_dump(mode="json", exclude_defaults=True)
    return {f"reading.{form.name}": version_with_settings(form.version, own)}


def _json_fields(column: str, reading: ReadingSettings) -> tuple[str, ...]:
    """Return the JSON fields that a column of the row model is read from; none for columns that the reader adds."""
    images: tuple[str, ...] = (RAW_KEY,)
    texts: tuple[str, ...] = (TEXT_EXTENSION.removeprefix("."),)
    if reading.layout != "images":
        images = (reading.images_field, *([reading.image_member_field] if reading.image_member_field else []))
        texts = (reading.texts_field,)
    match column:
        case "sample_id":
            return (reading.sample_id_field or RAW_KEY,)
        case "position" | "modality":
            return (*texts, *images[:1])
        case "text_content":
            return texts
        case "content_type" | "binary_content" | "source_ref" | "materialize_error":
            return images
        case _:
            field = json_field(column)
            return () if field is None else (field,)


STAGE: Final = Stage(
    NORMALIZED,
    (RAW_SHARDS,),
    version=5,
    settings=_settings,
    run=normalize,
    source_inputs=_format_version,
    checks=(LAYOUT, ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, SCHEMA_CANONICAL, KEYS_UNIQUE),
    columns=lambda _: INTERLEAVED_COLUMNS,
    made_from=lambda column, settings: columns_of(RAW_SHARDS, *_json_fields(column, settings.reading)),
    output=StageOutput("rows"),
    display=StageDisplay(
        "The shard as Parquet in the row model: one row per text and image in document order, and one row per document "
        "for its other fields. Rows hold the images, or name them in the raw shard (storage.image_bytes).",
        "ingest",
        frozenset({"parquet"}),
    ),
)
