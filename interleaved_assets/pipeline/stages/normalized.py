"""The stage ``normalized``: the raw shard as Parquet in the row model."""

from typing import Final

from interleaved_assets.io.tar.layout import TEXT_EXTENSION, json_field
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.layout_as_expected import LAYOUT
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.raw.bundles import raw_format
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import (
    Stage,
    StageDisplay,
    StageOutput,
    columns_of,
    version_with_settings,
)
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.settings import ReadingSettings, Settings

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
    version=3,
    settings=_settings,
    run=imported("interleaved_assets.pipeline.tasks.normalized:normalize"),
    source_inputs=_format_version,
    checks=(LAYOUT, ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, SCHEMA_CANONICAL, KEYS_UNIQUE),
    columns=lambda _: INTERLEAVED_COLUMNS,
    made_from=lambda column, settings: columns_of(RAW_SHARDS, *_json_fields(column, settings.reading)),
    output=StageOutput("rows"),
    display=StageDisplay(
        "The shard as Parquet in the row model, with image bytes: one row per text and image in document order, "
        "and one row per document for its other fields.",
        "ingest",
        frozenset({"parquet"}),
    ),
)
