"""dataset_report: the whole data set at a glance, unpartitioned."""

from typing import Any

import dagster as dg

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.io.storage import atomic_output, join
from interleaved_assets.reporting.aggregate import COMPLETE, aggregate
from interleaved_assets.reporting.collect import all_shard_facts
from interleaved_assets.reporting.dataset_report import html_report, markdown_report, totals
from interleaved_assets.reporting.measures import measures_of
from interleaved_assets.settings import Settings

REPORT_FILE = "dataset_report.html"


def build_dataset_report(settings: Settings) -> dg.AssetsDefinition:
    """The asset that adds up what the stages have stored of all shards; it reads scores and ledgers, never an image."""

    @dg.asset(
        name="dataset_report",
        deps=["filtered", "final_tars"],
        group_name="publish",
        kinds={"html"},
        owners=["team:data-curation"],
        description="Totals, keep rates, score distributions, what other thresholds would keep, the shards that want "
        "looking at. As metadata here, and as one self-contained HTML file.",
    )
    def dataset_report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        keys = sorted(context.instance.get_dynamic_partitions(SHARDS))
        data = aggregate(all_shard_facts(keys, settings), measures_of(settings.selection, unbounded=True))
        uri = join(settings.storage.output_root, REPORT_FILE)
        page = html_report(data, subtitle=settings.storage.raw_root)
        with atomic_output(uri, settings.storage.options) as out:
            out.write(page.encode())
        metadata: dict[str, Any] = {
            "report": dg.MetadataValue.md(markdown_report(data)),
            "html": dg.MetadataValue.path(uri),
            "dagster/uri": uri,
            "shards": len(data.shards),
            "shards_complete": sum(line.status == COMPLETE for line in data.shards),
        }
        for tally in totals(data):
            metadata |= {f"{tally.name}_in": tally.before, f"{tally.name}_kept": tally.after}
            if tally.before:
                metadata[f"{tally.name}_keep_rate"] = tally.after / tally.before
        return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(out.sha256 or ""))

    return dataset_report
