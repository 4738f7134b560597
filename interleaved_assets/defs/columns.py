"""The columns of a stage's output as metadata of its asset, so that the events of its shards need not repeat them."""

from typing import Any, Final

import dagster as dg

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.settings import Settings

_PASSTHROUGH: Final = (
    "Columns for the other fields of the documents follow, the same in normalized and filtered, each made from the "
    "field of its name. They differ from shard to shard: passthrough_columns of the shard at normalized has them, and "
    "its record."
)


def definition_metadata(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return the columns of the stage with their lineage; for selection, also the columns that decide on rows.

    The result is empty for stages whose output is no table of known columns.
    """
    columns = stage.columns(settings)
    if not columns:
        return {}
    notes = [_PASSTHROUGH] if columns is INTERLEAVED_COLUMNS else []
    metadata: dict[str, Any] = {
        "dagster/column_schema": dg.TableSchema([_column(column) for column in columns], dg.TableConstraints(notes)),
        "dagster/column_lineage": dg.TableColumnLineage(
            {
                column.name: [
                    dg.TableColumnDep(dg.AssetKey(source.stage), source.column)
                    for source in stage.made_from(column.name, settings)
                ]
                for column in columns
            }
        ),
    }
    if deciding := stage.decided_by(settings):
        metadata["rows_decided_by"] = ", ".join(f"{source.stage}.{source.column}" for source in deciding)
    return metadata


def _column(column: Column) -> dg.TableColumn:
    constraints = dg.TableColumnConstraints(nullable=column.nullable)
    return dg.TableColumn(column.name, column.dtype, column.meaning or None, constraints)
