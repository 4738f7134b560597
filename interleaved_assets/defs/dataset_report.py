"""The asset ``dataset_report``, which sums up the stored outputs of all shards."""

import hashlib
from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.assets import OWNERS
from interleaved_assets.defs.metadata import place_of
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.pipeline.run.check import PUBLISHED_ONCE
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import State
from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate
from interleaved_assets.reporting.dataset.report import publishing_problems, summary
from interleaved_assets.reporting.dataset.write import write_report
from interleaved_assets.settings import Settings

_NAMED: Final = 100


def make_report(context: dg.AssetExecutionContext, settings: Settings) -> dg.MaterializeResult:
    """Write the report below the output root."""
    registered = context.instance.get_dynamic_partitions(SHARDS)
    failed = progress(context.instance, stage_dag(settings), registered).failed
    found = read_dataset_status(settings, registered, failed)
    report = write_report(found, settings)
    data = report.data
    if report.problems:
        context.log.warning(" ".join(report.problems))
    return dg.MaterializeResult(
        metadata={
            "report": dg.MetadataValue.md(summary(data, report.problems, settings.checks.min_keep_rate)),
            "html": place_of(report.uri, settings),
            "dagster/uri": report.uri,
            "html_bytes": report.size,
            **figures(data),
        },
        # the date is left out, so that the same data has the same version
        data_version=dg.DataVersion(hashlib.sha256(report.page.replace(report.about.made, "").encode()).hexdigest()),
        check_results=[published_once(data, found.problem)],
    )


def published_once(data: DatasetAggregate, problem: str = "") -> dg.AssetCheckResult:
    """Check that final tars match their present raw tars and that none is published twice.

    ``problem`` is the error of the listing of raw shards.
    """
    found = [*([problem] if problem else []), *publishing_problems(data)]
    gone, twice = data.published(State.VANISHED), data.published_twice()
    return dg.AssetCheckResult(
        check_name=PUBLISHED_ONCE,
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(found) or "every final tar has its raw shard, and no content is published twice",
        metadata={
            "vanished_but_published": len(gone),
            "failed_but_published": len(data.published(State.FAILED)),
            "same_content": len(twice),
            **({"vanished_shards": dg.MetadataValue.json(gone[:_NAMED])} if gone else {}),
            **(
                {"shards_with_the_same_content": dg.MetadataValue.json([list(keys) for keys in twice[:_NAMED]])}
                if twice
                else {}
            ),
        },
    )


def figures(data: DatasetAggregate) -> dict[str, Any]:
    """Return the figures that the UI plots over time: shards by state, totals in and kept, drops, errors by code."""
    states = data.by_state()
    numbers: dict[str, Any] = {"shards": len(data.shards)}
    # states without shards are included, so that their plots show 0
    numbers |= {f"shards_{state}": states[state] for state in State}
    for tally in data.totals:
        numbers |= {f"{tally.name}_in": tally.before, f"{tally.name}_kept": tally.after}
        if tally.before:
            numbers[f"{tally.name}_keep_rate"] = round(tally.after / tally.before, 6)
    for reason, count in sorted(data.rows.items()):
        numbers[f"dropped/{reason.stage}/{reason.name}"] = count
    for code, count in sorted(data.errors.items()):
        numbers[f"errors/{code}"] = count
    return numbers


_PUBLISHED_ONCE: Final = (
    "The raw shard of every final tar exists and has not failed since, and no two final tars have the same content, as "
    "after a raw shard was renamed. interleaved forget, or the job forget_shards, removes what is left of a "
    "shard whose raw shard is gone."
)


def build_dataset_report(settings: Settings) -> dg.AssetsDefinition:
    """Return the asset that sums up the stored outputs of all shards.

    It reads records, scores and ledgers, but no images.
    """

    @dg.asset(
        name="dataset_report",
        deps=["filtered", "final_tars"],
        group_name="publish",
        kinds={"html"},
        owners=OWNERS,
        tags={"layer": "report"},
        description="Totals, shards that are not current with the reason, keep rates, score distributions, what other "
        "thresholds would keep, the shards to check first: one self-contained HTML file, with a summary of it as "
        "metadata here. Made by the schedule daily_report.",
        check_specs=[dg.AssetCheckSpec(PUBLISHED_ONCE, asset="dataset_report", description=_PUBLISHED_ONCE)],
    )
    def dataset_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return make_report(context, settings)

    return dataset_report
