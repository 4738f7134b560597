"""Production of the report: from the stored outputs of all shards to one HTML file below the output root."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from interleaved_assets.io.storage import atomic_output, join
from interleaved_assets.pipeline.run.throughput import read_throughput
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus
from interleaved_assets.reporting.dataset import REPORT_FILE
from interleaved_assets.reporting.dataset.aggregate import DatasetAggregate, aggregate
from interleaved_assets.reporting.dataset.examples import held_by
from interleaved_assets.reporting.dataset.report import About, about, html_report
from interleaved_assets.reporting.documents.pages import stored_pages
from interleaved_assets.reporting.figures.collect import all_shard_facts
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.settings import Settings


class WrittenReport(NamedTuple):
    """A report as it was written."""

    uri: str
    size: int
    """Size of the file in bytes."""
    page: str
    """HTML of the report."""
    data: DatasetAggregate
    problems: Sequence[str]
    """Sentences that name what could not be listed."""
    about: About


def write_report(found: DatasetStatus, settings: Settings) -> WrittenReport:
    """Sum up ``found`` and write the report. This reads records, scores and ledgers, but no images.

    Raises:
        StorageError: the report cannot be written, or an output that it sums up cannot be read.
    """
    data = aggregate(all_shard_facts(found), measures_of(settings.selection, settings.documents))
    problems = [f"Changed and vanished raw shards cannot be recognized: {found.problem}"] if found.problem else []
    described = about(settings)
    page = html_report(
        data,
        subtitle=f"{settings.storage.raw_root} → {settings.storage.output_root}",
        problems=problems,
        min_keep_rate=settings.checks.min_keep_rate,
        about=described,
        held=held_by(itertools.chain(*data.examples.values()), settings.storage),
        selection=settings.selection,
        pages=stored_pages(settings.storage) if settings.pages.enabled else {},
        throughput=read_throughput(found.stages.stages, settings.storage),
    )
    uri = join(settings.storage.output_root, REPORT_FILE)
    with atomic_output(uri, settings.storage.options) as out:
        out.write(page.encode())
    return WrittenReport(uri, out.size, page, data, problems, described)
