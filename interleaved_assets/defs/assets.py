"""The chain of assets: one partition per shard, each body one call into a plain function."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import dagster as dg

from interleaved_assets.defs.gpu import StepNeeds, gpu_step
from interleaved_assets.defs.partitions import shards
from interleaved_assets.defs.pictures import Draw, score_pictures, selection_pictures
from interleaved_assets.defs.shard_run import run_over_shards
from interleaved_assets.pipeline.chain import chain, code_versions
from interleaved_assets.pipeline.checks import (
    EVERY_IMAGE_SCORED,
    MATERIALIZATION_ERRORS,
    ROWS_ACCOUNTED_FOR,
    ShardCheck,
)
from interleaved_assets.pipeline.raw import content_version, find_raw_shard
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.settings import Settings

OWNERS: Final = ["team:data-curation"]
SHARD_IO: Final = StepNeeds("shard_io", {})


@dataclass(frozen=True)
class Shown:
    """How a stage appears in the UI, and what is checked and pictured of each shard."""

    description: str
    group: str
    kinds: frozenset[str]
    checks: Sequence[ShardCheck] = ()
    draw: Draw | None = None


SHOWN: Final[Mapping[str, Shown]] = MappingProxyType(
    {
        "normalized": Shown(
            "The shard as Parquet in the row model, image bytes included: one row per text and image, in document "
            "order, and one per document for its other fields.",
            "ingest",
            frozenset({"parquet"}),
            (MATERIALIZATION_ERRORS, ROWS_ACCOUNTED_FOR),
        ),
        "image_scores": Shown(
            "One row per image: size, sharpness, QR code area. Measured once and kept; thresholds are applied later.",
            "score",
            frozenset({"parquet", "opencv"}),
            (MATERIALIZATION_ERRORS, EVERY_IMAGE_SCORED),
            score_pictures,
        ),
        "clip_scores": Shown(
            "One row per image: its best cosine similarity with a text of its sample, and what the heads make of its "
            "embedding. Runs where the GPU is.",
            "score",
            frozenset({"parquet", "pytorch"}),
            (MATERIALIZATION_ERRORS, EVERY_IMAGE_SCORED),
            score_pictures,
        ),
        "filtered": Shown(
            "The rows that pass the thresholds in interleaved.toml; what does not is in the ledger, with reason, "
            "measured value and threshold.",
            "select",
            frozenset({"parquet"}),
            (MATERIALIZATION_ERRORS, ROWS_ACCOUNTED_FOR),
            selection_pictures,
        ),
        "final_tars": Shown(
            "Training tars: per sample <key>.json and its images, plain MINT-1T to any reader.",
            "publish",
            frozenset({"webdataset"}),
            (MATERIALIZATION_ERRORS, ROWS_ACCOUNTED_FOR),
        ),
    }
)


def build_assets(settings: Settings) -> list[dg.AssetsDefinition | dg.SourceAsset]:
    """The assets of the chain, in order, all under the same ``settings``."""
    stages = chain(settings)
    versions = code_versions(stages, settings)
    return [
        _raw_shards(settings),
        *(_shard_asset(stage, versions[name], settings) for name, stage in stages.items()),
    ]


def _raw_shards(settings: Settings) -> dg.SourceAsset:
    @dg.observable_source_asset(
        name=RAW_SHARDS,
        partitions_def=shards,
        group_name="ingest",
        description="Raw MINT-1T style tars below storage.raw_root, one partition each. Made elsewhere, observed here.",
        tags={"layer": "raw"},
    )
    def raw_shards(context: dg.OpExecutionContext) -> dg.DataVersionsByPartition:
        return dg.DataVersionsByPartition(
            {
                key: dg.DataVersion(content_version(find_raw_shard(key, settings.storage), settings.storage))
                for key in context.partition_keys
            }
        )

    return raw_shards


def _shard_asset(stage: Stage, code_version: str, settings: Settings) -> dg.AssetsDefinition:
    shown = SHOWN[stage.name]
    # a stage that takes its shards together does so to fill a device
    needs = gpu_step(settings.clip.device) if stage.together else SHARD_IO

    # Nothing: outputs are files that the stages write, an IO manager has nothing to keep
    @dg.asset(  # type: ignore[call-overload]  # Dagster takes Nothing as a type, its annotations do not
        name=stage.name,
        deps=list(stage.inputs),
        partitions_def=shards,
        backfill_policy=dg.BackfillPolicy.multi_run(settings.run.shards_per_run),
        code_version=code_version,
        automation_condition=dg.AutomationCondition.eager(),
        dagster_type=dg.Nothing,
        description=shown.description,
        group_name=shown.group,
        kinds=set(shown.kinds),
        owners=OWNERS,
        pool=needs.pool,
        op_tags=needs.op_tags,
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=stage.name, description=check.description, partitions_def=shards)
            for check in shown.checks
        ],
    )
    def shard_asset(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        yield from run_over_shards(context, stage, shown.checks, shown.draw, settings)

    return shard_asset
