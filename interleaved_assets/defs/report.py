"""The asset dataset_report: the state and the figures of the whole data set, unpartitioned."""

from typing import Any, Final

import dagster as dg

from interleaved_assets.defs.assets import OWNERS
from interleaved_assets.defs.partitions import SHARDS, progress
from interleaved_assets.defs.private_api import keep_connections
from interleaved_assets.defs.status_notes import publish_status_notes
from interleaved_assets.io.storage import atomic_output, join
from interleaved_assets.pipeline.dataset_status import read_dataset_status
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status import State
from interleaved_assets.reporting.aggregate import DatasetAggregate, aggregate
from interleaved_assets.reporting.collect import all_shard_facts
from interleaved_assets.reporting.dataset_report import html_report, markdown_report, totals
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.settings import Settings

REPORT_FILE: Final = "dataset_report.html"


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
    )
    def dataset_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        keep_connections(context.instance)
        registered = context.instance.get_dynamic_partitions(SHARDS)
        found = read_dataset_status(
            settings, registered, progress(context.instance, stage_dag(settings), registered).failed
        )
        data = aggregate(all_shard_facts(found), measures_of(settings.selection, unbounded=True))
        problems = []
        if found.problem:
            problems.append(f"Changed and vanished raw shards cannot be recognized: {found.problem}")
            context.log.warning(problems[-1])
        uri = join(settings.storage.output_root, REPORT_FILE)
        least = settings.checks.min_keep_rate
        page = html_report(data, subtitle=settings.storage.raw_root, problems=problems, min_keep_rate=least)
        with atomic_output(uri, settings.storage.options) as out:
            out.write(page.encode())
        statuses = {shard.key: shard.problem or shard.status.text for shard in data.worst() if not shard.is_current}
        publish_status_notes(context, statuses, set(registered), settings)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.md(markdown_report(data, problems, least)),
                "html": dg.MetadataValue.path(uri),
                "dagster/uri": uri,
                "html_bytes": out.size,
                **figures(data),
            },
            data_version=dg.DataVersion(out.sha256 or ""),
        )

    return dataset_report


def figures(data: DatasetAggregate) -> dict[str, Any]:
    """Figures that the UI plots over time: shards by state, totals in and kept, drops by reason, errors by code."""
    states = data.by_state()
    numbers: dict[str, Any] = {"shards": len(data.shards)}
    # states without shards too, so that their plots show 0
    numbers |= {f"shards_{state}": states[state] for state in State}
    for tally in totals(data):
        numbers |= {f"{tally.name}_in": tally.before, f"{tally.name}_kept": tally.after}
        if tally.before:
            numbers[f"{tally.name}_keep_rate"] = tally.after / tally.before
    for reason, count in sorted(data.rows.items()):
        numbers[f"dropped/{reason.stage}/{reason.name}"] = count
    for code, count in sorted(data.errors.items()):
        numbers[f"errors/{code}"] = count
    return numbers
