"""The columns of a stage's output as metadata of its asset, so that the events of its shards need not repeat them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.lineage.columns import column_lineage, deciding_columns
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.stages import clip_scores, filtered, image_scores, normalized
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.scoring.registry import scores_schema
from interleaved_assets.settings import Settings

_UNKNOWN_WIDTH: Final = 1  # of embeddings, which depends on the model
_PASSTHROUGH: Final = (
    "Columns for the other fields of the documents follow, the same in normalized and filtered, each made from the "
    "field of its name. They differ from shard to shard: passthrough_columns of the shard at normalized has them, and "
    "its record."
)
_SCHEMAS: Final[Mapping[str, Callable[[Settings], pa.Schema]]] = MappingProxyType(
    {
        normalized.NAME: lambda _: INTERLEAVED_SCHEMA,
        image_scores.NAME: lambda settings: scores_schema(settings.scoring),
        clip_scores.NAME: lambda settings: clip_schema(settings.clip, _UNKNOWN_WIDTH),
        filtered.NAME: lambda _: INTERLEAVED_SCHEMA,
    }
)


def definition_metadata(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Columns of the stage with their lineage, and for the selection its filters and the columns that decide.

    Empty for stages whose output is not one of the tables of this package.
    """
    if stage.name not in _SCHEMAS:
        return {}
    schema = _SCHEMAS[stage.name](settings)
    notes = [_PASSTHROUGH] if schema is INTERLEAVED_SCHEMA else []
    lineage = column_lineage(stage.name, schema.names, settings.reading)
    metadata: dict[str, Any] = {
        "dagster/column_schema": dg.TableSchema([_column(field) for field in schema], dg.TableConstraints(notes)),
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


def _column(field: pa.Field) -> dg.TableColumn:
    dtype = pa.list_(field.type.value_type) if pa.types.is_fixed_size_list(field.type) else field.type
    return dg.TableColumn(field.name, str(dtype), constraints=dg.TableColumnConstraints(nullable=field.nullable))
