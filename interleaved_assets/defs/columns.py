"""The columns of a stage's output as metadata of its asset, so that the events of its shards need not repeat them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dagster as dg

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.pipeline.lineage.columns import column_lineage, deciding_columns
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, FILTERED, IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.clip.columns import clip_columns
from interleaved_assets.scoring.registry import score_columns
from interleaved_assets.settings import Settings

_PASSTHROUGH: Final = (
    "Columns for the other fields of the documents follow, the same in normalized and filtered, each made from the "
    "field of its name. They differ from shard to shard: passthrough_columns of the shard at normalized has them, and "
    "its record."
)
_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sample_id": "The document.",
        "position": "The place in the document, from 0; -1 is the row with the document's other fields.",
        "modality": "text, image or metadata; others, such as table, are kept as they are.",
        "content_type": "The MIME type, such as image/jpeg.",
        "text_content": "The text, on rows of texts.",
        "binary_content": "The bytes of the image, on rows of images.",
        "source_ref": "Where the bytes were read: JSON with path, member, byte_offset, byte_size and frame_index.",
        "materialize_error": "'code: detail' of a row that could not be read, else null (docs/errors.md).",
        "width": "Pixels.",
        "height": "Pixels.",
        "aspect_ratio": "Width / height.",
        "sharpness": "Variance of the Laplacian in colour, at full resolution; NeMo Curator's measure.",
        "sharpness_grey": "Variance of the Laplacian in grey, at full resolution.",
        "sharpness_256": "Variance of the Laplacian in colour, at a short side of at most 256 pixels.",
        "qr_area_ratio": "Share of the image under QR codes, 0 to 1.",
        "nsfw_score": "Probability from the pixels, 0 to 1.",
        "thumbnail": "A small JPEG, for the reports.",
        "score_error": "'code: detail' of an image that could not be measured, else null (docs/errors.md).",
        "clip_score": "Highest cosine similarity of the image with a text of its document, -1 to 1.",
        "clip_text_position": "The position of that text.",
        "embedding": "CLIP's embedding of the image, of length 1.",
        "clip_error": "'code: detail' of an image without a CLIP score, else null (docs/errors.md).",
    }
)
"""What the columns hold; heads of CLIP and scorers of others have names that are not known here."""
_COLUMNS: Final[Mapping[str, Callable[[Settings], Sequence[Column]]]] = MappingProxyType(
    {
        NORMALIZED: lambda _: INTERLEAVED_COLUMNS,
        IMAGE_SCORES: lambda settings: score_columns(settings.scoring),
        CLIP_SCORES: lambda settings: clip_columns(settings.clip),
        FILTERED: lambda _: INTERLEAVED_COLUMNS,
    }
)


def definition_metadata(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Columns of the stage with their lineage, and for the selection its filters and the columns that decide.

    Empty for stages whose output is not one of the tables of this package.
    """
    if stage.name not in _COLUMNS:
        return {}
    columns = _COLUMNS[stage.name](settings)
    notes = [_PASSTHROUGH] if columns is INTERLEAVED_COLUMNS else []
    lineage = column_lineage(stage.name, [column.name for column in columns], settings.reading)
    metadata: dict[str, Any] = {
        "dagster/column_schema": dg.TableSchema([_column(column) for column in columns], dg.TableConstraints(notes)),
        "dagster/column_lineage": dg.TableColumnLineage(
            {
                name: [dg.TableColumnDep(dg.AssetKey(source.stage), source.column) for source in sources]
                for name, sources in lineage.items()
            }
        ),
    }
    if deciding := deciding_columns(stage.name, stage.inputs, settings.scoring, settings.selection):
        metadata["rows_decided_by"] = ", ".join(f"{source.stage}.{source.column}" for source in deciding)
    return metadata


def _column(column: Column) -> dg.TableColumn:
    constraints = dg.TableColumnConstraints(nullable=column.nullable)
    return dg.TableColumn(column.name, column.dtype, _MEANINGS.get(column.name), constraints)
