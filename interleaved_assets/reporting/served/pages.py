"""The pages that are made on request: the state of all shards with links, and a ledger as a table."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.storage import exists, join, open_input, read_small
from interleaved_assets.model.ledger import LEDGER_SCHEMA
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus, ShardState, read_dataset_status
from interleaved_assets.pipeline.status.status import URGENT, State, Status, StatusLine, status_lines
from interleaved_assets.reporting.dataset import REPORT_FILE
from interleaved_assets.reporting.dataset.aggregate import shards_version
from interleaved_assets.reporting.documents.pages import stored_pages
from interleaved_assets.reporting.figures.collect import published_versions
from interleaved_assets.reporting.served.places import Place, path_of
from interleaved_assets.reporting.wording.page import policy_hash, source, template
from interleaved_assets.reporting.wording.prose import visible
from interleaved_assets.settings import Settings, StorageSettings

PAGE_ROWS: Final = 100
"""Most shards or dropped rows on one page."""
_STEP_BYTES: Final = 16 * 2**20
_REPORT_HEAD: Final = 2000
"""Bytes at the beginning of a report that have the version of its shards."""
_DOCUMENT: Final = re.compile(r'<article id="(d\d+)"[^>]*>\s*<header><h2><bdi>(.*?)</bdi>', re.DOTALL)


class ServedShard(NamedTuple):
    """A shard in the list."""

    key: str
    status: Status
    problem: str
    """The error with which it failed, or with which it cannot be read."""
    page: str
    """Path of its page; empty if there is none."""
    ledgers: Mapping[str, str]
    """Path of each ledger, by the stage that dropped the rows."""


class ServedDataset(NamedTuple):
    """All shards as they were at one time."""

    shards: list[ServedShard]
    """The shards, most urgent first."""
    lines: list[StatusLine]
    problem: str
    """The error if the raw root could not be listed, else empty."""
    has_report: bool
    report_is_old: bool
    """True if the report is on other states or final tars of shards."""
    looked: datetime
    seconds: float
    """Seconds that the comparison of all shards took."""


def look_at_dataset(settings: Settings) -> ServedDataset:
    """Compare all shards with their records, as ``interleaved status`` does."""
    since = time.monotonic()
    dataset = read_dataset_status(settings)
    pages = stored_pages(settings.storage)
    shards, published = list[ServedShard](), list[tuple[str, Status, tuple[str, ...]]]()
    for shard in dataset.shards():  # the records of all shards are not held
        shards.append(_served(shard, dataset, pages))
        published.append((shard.key, shard.status, published_versions(shard.records)))
    report = _report_head(settings.storage)
    return ServedDataset(
        sorted(shards, key=lambda shard: (URGENT.index(shard.status.state), shard.key)),
        status_lines({shard.key: shard.status for shard in shards}, {shard.key: shard.problem for shard in shards}),
        dataset.problem,
        report is not None,
        report is not None and shards_version(published).encode() not in report,
        datetime.now(UTC),
        time.monotonic() - since,
    )


def _report_head(storage: StorageSettings) -> bytes | None:
    """Return the beginning of the report; None if there is no report."""
    uri = join(storage.output_root, REPORT_FILE)
    if not exists(uri, storage.options):
        return None
    with open_input(uri, storage.options) as report:
        return report.read(_REPORT_HEAD)


def _served(shard: ShardState, dataset: DatasetStatus, pages: Mapping[str, str]) -> ServedShard:
    key, status, records, error = shard
    if error:
        return ServedShard(key, Status(State.UNREADABLE, State.UNREADABLE), str(error), pages.get(key, ""), {})
    paths = dataset.storage.shard(key)
    ledgers: dict[str, str] = {
        stage: path_of(paths.ledger(stage), dataset.storage)
        for stage in LEDGER_STAGES
        if stage in records and records[stage].dropped
    }
    return ServedShard(key, status, dataset.problem_of(key, status), pages.get(key, ""), ledgers)


def shards_html(found: ServedDataset, storage: StorageSettings, *, search: str = "", number: int = 1) -> str:
    """Return the page with the state of the data set, and a part of its shards: those with ``search`` in their key."""
    shards, first = [shard for shard in found.shards if search in shard.key], (number - 1) * PAGE_ROWS
    return _html(
        "served_shards.html.j2",
        title=storage.output_root,
        found=found,
        search=search,
        report=REPORT_FILE,
        matching=len(shards),
        shards=shards[first : first + PAGE_ROWS],
        number=number,
        pages=_pages(len(shards)),
    )


def ledger_html(place: Place, settings: Settings, *, number: int = 1) -> str:
    """Return a part of a ledger as a table.

    Raises:
        StorageError: the ledger cannot be read; the cause is ``FileNotFoundError`` if it does not exist.
        ShardError: the file is damaged, or no ledger.
    """
    first = (number - 1) * PAGE_ROWS
    rows: list[dict[str, Any]] = []
    advice = f"Delete it and materialize {place.stage} again."
    with open_parquet(place.uri, settings.storage.options, advice=advice) as ledger:
        total, passed = ledger.file.metadata.num_rows, 0
        for step in ledger.rows(LEDGER_SCHEMA.names, _STEP_BYTES):
            start = max(first - passed, 0)
            rows += step.slice(start, PAGE_ROWS - len(rows)).to_pylist() if start < step.num_rows else []
            passed += step.num_rows
            if len(rows) == PAGE_ROWS:
                break
    paths = settings.storage.shard(place.key)
    page = read_small(paths.page(), settings.storage.options)
    anchors = {shown: anchor for anchor, shown in _DOCUMENT.findall((page or b"").decode(errors="replace"))}
    return _html(
        "served_ledger.html.j2",
        title=f"{place.key}: rows that {place.stage} dropped",
        rows=[{**row, "anchor": anchors.get(str(visible(row["sample_id"])))} for row in rows],
        # columns without any value on this page are left out
        optional=[name for name in ("measured", "threshold", "detail") if any(row[name] is not None for row in rows)],
        page="" if page is None else f"/{path_of(paths.page(), settings.storage)}",
        total=total,
        number=number,
        pages=_pages(total),
        first=first,
        key=place.key,
    )


def message_html(title: str, text: str) -> str:
    """Return a page that says why the requested page cannot be shown."""
    return _html("served_message.html.j2", title=title, text=text)


def _pages(rows: int) -> int:
    return max(-(-rows // PAGE_ROWS), 1)


def _html(name: str, **values: Any) -> str:
    style = Markup("\n").join(map(source, ("theme.css", "dataset_report.css", "served.css")))
    return template(name).render(style=style, style_hash=policy_hash(style), **values)
