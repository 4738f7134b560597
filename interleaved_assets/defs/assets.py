"""The assets: one for each stage, with one partition per shard, and the report on all shards."""

from collections.abc import Iterator
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.executors import GPU, SHARD_IO, gpu_tags
from interleaved_assets.defs.partitions import SHARDS, shards
from interleaved_assets.defs.shard_run import run_over_shards
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.pipeline.raw.listing import find_raw_shard, list_raw_shards, raw_content_version
from interleaved_assets.pipeline.raw.snapshot import snapshot_versions
from interleaved_assets.pipeline.run.check import MATERIALIZATION_ERRORS
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages.dag import code_versions, stage_dag
from interleaved_assets.settings import Settings, StorageSettings

_PASSTHROUGH: Final = (
    "Columns for the other fields of the documents follow, the same in normalized and filtered, each made from the "
    "field of its name. They differ from shard to shard: passthrough_columns of the shard at normalized has them, and "
    "its record."
)
_OF_ONE_SHARD: Final = (
    "**Partitions** has the result of each shard; the latest execution below is that of one shard alone. "
    "*Execution failed* says that this shard failed before the check."
)

OWNERS: Final = ["team:data-curation"]


def build_assets(settings: Settings, *, in_pools: bool = True) -> list[dg.AssetsDefinition | dg.SourceAsset]:
    """Return the assets of the chain, in order, all under the same ``settings``, with or without their pools."""
    stages = stage_dag(settings)
    versions = code_versions(stages, settings)
    return [
        _raw_shards(settings.storage),
        *(_shard_asset(stage, versions[name], settings, in_pools=in_pools) for name, stage in stages.items()),
    ]


def _raw_shards(storage: StorageSettings) -> dg.SourceAsset:
    @dg.observable_source_asset(
        name=RAW_SHARDS,
        partitions_def=shards,
        group_name="ingest",
        description="Raw shards below storage.raw_root, one partition each: tars, and files of the other formats. "
        "They are observed, not materialized: the Events tab shows URI, size and version of each, and Dagster counts "
        "all of them as missing. raw_shard_sensor observes new and changed ones, and Observe all that have a "
        "partition, without their URI and size.",
        tags={"layer": "raw", "dagster/kind/tar": ""},
    )
    def raw_shards(context: dg.OpExecutionContext) -> dg.DataVersionsByPartition:
        known: dict[str, str] = {}
        if context.has_partition_key or context.has_partition_key_range:
            raws = [find_raw_shard(key, storage) for key in context.partition_keys]
        else:  # the button Observe of the UI names no partition, and means all
            registered = set(context.instance.get_dynamic_partitions(SHARDS))
            raws = [raw for raw in list_raw_shards(storage) if raw.key in registered]
            known = snapshot_versions(raws, storage)
        return dg.DataVersionsByPartition(
            {raw.key: dg.DataVersion(known.get(raw.key) or raw_content_version(raw, storage)) for raw in raws}
        )

    return raw_shards


def _check_specs(stage: Stage) -> list[dg.AssetCheckSpec]:
    """Return one check for all checks of a single shard, and one for each check that compares it with others."""
    described = "\n".join(f"* `{check.name}`: {check.description}" for check in stage.checks if not check.compares)
    held = f"All of these hold for the shard; its result counts the errors, and lists each by name.\n\n{described}"
    comparisons = {check.name: check.description for check in stage.checks if check.compares}
    return [
        dg.AssetCheckSpec(name, asset=stage.name, description=f"{_OF_ONE_SHARD} {description}", partitions_def=shards)
        for name, description in {MATERIALIZATION_ERRORS: held, **comparisons}.items()
    ]


def _shard_asset(stage: Stage, code_version: str, settings: Settings, *, in_pools: bool) -> dg.AssetsDefinition:
    display = stage.display
    # stages that take their shards together run on a device
    pool, tags = (GPU, gpu_tags(settings.clip.device)) if stage.together else (SHARD_IO, {})
    metadata = definition_metadata(stage, settings)
    if settings.serve.url:  # no page of Dagster says why shards failed
        metadata["state_of_all_shards"] = dg.MetadataValue.url(settings.serve.url)

    # the type is Nothing: the stages write the outputs themselves, so an IO manager has nothing to store
    @dg.asset(  # type: ignore[call-overload]  # Dagster takes Nothing as a type, its annotations do not
        name=stage.name,
        deps=list(stage.inputs),
        partitions_def=shards,
        backfill_policy=dg.BackfillPolicy.multi_run(settings.run.shards_per_run),
        code_version=code_version,
        dagster_type=dg.Nothing,
        description=display.description,
        group_name=display.group or None,
        kinds=set(display.kinds),
        owners=OWNERS,
        tags={"layer": display.group, "pool": pool},  # for selections such as tag:pool=gpu
        pool=pool if in_pools else None,
        op_tags=tags,
        metadata=metadata,
        check_specs=_check_specs(stage),
    )
    def shard_asset(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        yield from run_over_shards(context, stage, settings, code_version)

    return shard_asset


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
