"""The asset dataset_report: the state and the figures of the whole data set, unpartitioned."""

from typing import Final

import dagster as dg

from interleaved_assets.defs.assets import OWNERS
from interleaved_assets.pipeline.checks.verdict import PUBLISHED_ONCE
from interleaved_assets.settings import Settings

_PUBLISHED_ONCE: Final = (
    "The raw tar of every final tar is there, and no two final tars have the same content, as after a raw tar was "
    "renamed. interleaved forget, or the job forget_shards, removes what a shard without a raw tar has left."
)


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
