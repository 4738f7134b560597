"""The assets: of each stage, with one partition per shard, and the report on all shards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import dagster as dg

from interleaved_assets.defs.columns import definition_metadata
from interleaved_assets.defs.executors import gpu_tags
from interleaved_assets.defs.partitions import shards
from interleaved_assets.defs.pools import GPU, SHARD_IO
from interleaved_assets.pipeline.checks.keep_rate import KEEP_RATE
from interleaved_assets.pipeline.checks.layout import LAYOUT
from interleaved_assets.pipeline.checks.rows import KEYS_UNIQUE, READS_BACK, ROWS_ACCOUNTED_FOR, ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schemas import CLIP_SCORE_SCHEMA, IMAGE_SCORE_SCHEMA, ROW_SCHEMA
from interleaved_assets.pipeline.checks.scores import CLIP_SCORES_IN_RANGE, EVERY_IMAGE_SCORED, IMAGE_SCORES_IN_RANGE
from interleaved_assets.pipeline.checks.verdict import MATERIALIZATION_ERRORS, PUBLISHED_ONCE, ShardCheck
from interleaved_assets.pipeline.raw.listing import find_raw_shard, raw_content_version
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.stages.dag import code_versions, stage_dag
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets.settings.sections import ServeSettings

OWNERS: Final = ["team:data-curation"]
_PUBLISHED_ONCE: Final = (
    "The raw tar of every final tar is there and has not failed since, and no two final tars have the same content, as "
    "after a raw tar was renamed. interleaved forget, or the job forget_shards, removes what a shard without a raw tar "
    "has left."
)


@dataclass(frozen=True)
class StageDisplay:
    """How a stage appears in the UI, with its checks of each shard."""

    description: str
    group: str
    kinds: frozenset[str]
    checks: Sequence[ShardCheck] = ()


STAGE_DISPLAYS: Final[Mapping[str, StageDisplay]] = MappingProxyType(
    {
        "normalized": StageDisplay(
            "The shard as Parquet in the row model, with image bytes: one row per text and image in document order, "
            "and one row per document for its other fields.",
            "ingest",
            frozenset({"parquet"}),
            (LAYOUT, ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, ROW_SCHEMA, KEYS_UNIQUE),
        ),
        "image_scores": StageDisplay(
            "One row per image: size, sharpness, QR code area. Measured once; thresholds are applied in filtered.",
            "score",
            frozenset({"parquet", "opencv"}),
            (ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, IMAGE_SCORES_IN_RANGE, IMAGE_SCORE_SCHEMA),
        ),
        "clip_scores": StageDisplay(
            "One row per image: its best cosine similarity with a text of its sample, and the scores of the heads on "
            "its embedding. Runs on the GPU.",
            "score",
            frozenset({"parquet", "pytorch"}),
            (ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, CLIP_SCORES_IN_RANGE, CLIP_SCORE_SCHEMA),
        ),
        "filtered": StageDisplay(
            "The rows that pass the thresholds in interleaved.toml. The ledger lists the other rows with reason, "
            "measured value and threshold.",
            "select",
            frozenset({"parquet"}),
            (ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, ROW_SCHEMA, KEYS_UNIQUE, KEEP_RATE),
        ),
        "final_tars": StageDisplay(
            "Training tars: `<key>.json` and the images of each sample, readable as plain MINT-1T.",
            "publish",
            frozenset({"webdataset"}),
            (ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, READS_BACK),
        ),
        "image_export": StageDisplay(
            "The images that selection has kept as tars `images-<hash>-<number>.tar`, with a JSON for each image and a "
            "Parquet file beside each tar. This table has one row per image: its tar and member, its scores and the "
            "texts around it.",
            "publish",
            frozenset({"webdataset", "parquet"}),
            (ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR),
        ),
    }
)


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
        description="Raw MINT-1T style tars below storage.raw_root, one partition each. They are observed, not "
        "materialized: the Events tab shows URI, size and version of each, and Dagster counts all of them as missing.",
        tags={"layer": "raw", "dagster/kind/tar": ""},
    )
    def raw_shards(context: dg.OpExecutionContext) -> dg.DataVersionsByPartition:
        return dg.DataVersionsByPartition(
            {
                key: dg.DataVersion(raw_content_version(find_raw_shard(key, storage), storage))
                for key in context.partition_keys
            }
        )

    return raw_shards


def _check_specs(asset: str, checks: Sequence[ShardCheck]) -> list[dg.AssetCheckSpec]:
    """One check for all that judge a shard alone, and each of those that compare it with others."""
    described = "\n".join(f"* `{check.name}`: {check.description}" for check in checks if not check.compares)
    held = f"All of these hold for the shard; its result counts the errors, and lists each by name.\n\n{described}"
    comparisons = {check.name: check.description for check in checks if check.compares}
    return [
        dg.AssetCheckSpec(name, asset=asset, description=description, partitions_def=shards)
        for name, description in {MATERIALIZATION_ERRORS: held, **comparisons}.items()
    ]


def _state_of_shards(serve: ServeSettings) -> dict[str, dg.UrlMetadataValue]:
    """A link on the page of the asset to the state of all shards: Dagster has no page that says why shards failed."""
    return {"state_of_all_shards": dg.MetadataValue.url(serve.url)} if serve.url else {}


def _shard_asset(stage: Stage, code_version: str, settings: Settings, *, in_pools: bool) -> dg.AssetsDefinition:
    display = STAGE_DISPLAYS[stage.name]
    # stages that take their shards together run on a device
    pool, tags = (GPU, gpu_tags(settings.clip.device)) if stage.together else (SHARD_IO, {})

    # Nothing: the stages write the outputs themselves, so an IO manager has nothing to store
    @dg.asset(  # type: ignore[call-overload]  # Dagster takes Nothing as a type, its annotations do not
        name=stage.name,
        deps=list(stage.inputs),
        partitions_def=shards,
        backfill_policy=dg.BackfillPolicy.multi_run(settings.run.shards_per_run),
        code_version=code_version,
        dagster_type=dg.Nothing,
        description=display.description,
        group_name=display.group,
        kinds=set(display.kinds),
        owners=OWNERS,
        tags={"layer": display.group, "pool": pool},  # for selections such as tag:pool=gpu
        pool=pool if in_pools else None,
        op_tags=tags,
        metadata=definition_metadata(stage, settings) | _state_of_shards(settings.serve),
        check_specs=_check_specs(stage.name, display.checks),
    )
    def shard_asset(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        # the step begins here: what does its work is not imported with the definitions
        from interleaved_assets.defs.steps.shard_run import run_over_shards

        yield from run_over_shards(context, stage, display.checks, settings, code_version)

    return shard_asset


def build_dataset_report(settings: Settings) -> dg.AssetsDefinition:
    """The asset that sums up the stored outputs of all shards; it reads records, scores and ledgers, but no images."""

    @dg.asset(
        name="dataset_report",
        deps=["filtered", "final_tars"],
        group_name="publish",
        kinds={"html"},
        owners=OWNERS,
        tags={"layer": "report"},
        description="Totals, shards that are not current with the reason, keep rates, score distributions, what other "
        "thresholds would keep, the shards to check first. As metadata here, and as one self-contained HTML "
        "file. Made every morning. Publishes the reason on the page of each shard that is not current.",
        check_specs=[dg.AssetCheckSpec(PUBLISHED_ONCE, asset="dataset_report", description=_PUBLISHED_ONCE)],
    )
    def dataset_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        # the step begins here: what does its work is not imported with the definitions
        from interleaved_assets.defs.steps.report import make_report

        return make_report(context, settings)

    return dataset_report
