"""The columns of a stage's output as metadata of its asset, so that the events of its shards need not repeat them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dagster as dg

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.pipeline.lineage.columns import column_lineage, deciding_columns
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, FILTERED, IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.clip.columns import clip_columns
from interleaved_assets.scoring.protocol.registry import score_columns
from interleaved_assets.settings import Settings

_PASSTHROUGH: Final = (
    "Columns for the other fields of the documents follow, the same in normalized and filtered, each made from the "
    "field of its name. They differ from shard to shard: passthrough_columns of the shard at normalized has them, and "
    "its record."
)
_COLUMNS: Final[Mapping[str, Callable[[Settings], Sequence[Column]]]] = MappingProxyType(
    {
        NORMALIZED: lambda _: INTERLEAVED_COLUMNS,
        IMAGE_SCORES: lambda settings: score_columns(settings.scoring),
        CLIP_SCORES: lambda settings: clip_columns(settings.clip),
        FILTERED: lambda _: INTERLEAVED_COLUMNS,
    }
)


def definition_metadata(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return the columns of the stage with their lineage; for selection, also its filters and the deciding columns.

    The result is empty for stages whose output is not one of the tables of this package.
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
    return dg.TableColumn(column.name, column.dtype, column.meaning or None, constraints)
