"""Licences and sources that documents name in their passthrough columns."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.model.cells import cell_values
from interleaved_assets.pipeline.release.manifest import ColumnValues
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.pipeline.stages.outputs import read_ledgers
from interleaved_assets.settings.shard_paths import ShardPaths

LICENCE_COLUMNS: Final = ("license", "licence", "license_name", "licence_name", "license_url", "rights")
SOURCE_COLUMNS: Final = ("source", "dataset", "source_dataset")
URL_COLUMNS: Final = ("url", "source_url", "page_url")
"""Names of columns, in any case. For ``URL_COLUMNS`` the host is counted, not the value."""
MOST: Final = 100
_LONGEST: Final = 200
"""Most characters of a value; longer values are cut."""

Counted = dict[str, Counter[str]]
"""By column, the number of documents with each value."""


def values_of_shard(paths: ShardPaths, records: Mapping[str, Record]) -> Counted:
    """Count the values of licence and source columns over the documents of one shard's final tar.

    A value that is no text counts as JSON.
    """
    record = records[FILTERED]
    wanted = {*LICENCE_COLUMNS, *SOURCE_COLUMNS, *URL_COLUMNS}
    columns = [name for name in record.columns if name.casefold() in wanted]
    if not columns:
        return {}
    with open_parquet(paths.output(FILTERED), paths.options, advice="Materialize filtered again.") as source:
        table = source.read(["sample_id", "modality", *columns])
    table = table.filter(pc.equal(table["modality"], "metadata"))
    if records[FINAL_TARS].dropped:
        ledger = read_ledgers(paths, [FINAL_TARS])
        dropped = ledger.filter(pc.equal(ledger["modality"], "metadata"))["sample_id"]
        table = table.filter(pc.invert(pc.is_in(table["sample_id"], value_set=pc.unique(dropped))))
    return {name: _counted(table[name], is_url=name.casefold() in URL_COLUMNS) for name in columns}


def _counted(column: pa.ChunkedArray, *, is_url: bool) -> Counter[str]:
    is_json = isinstance(column.type, pa.BaseExtensionType)
    found: Counter[str] = Counter()
    for value in cell_values(column.drop_null()):
        text = _text(json.loads(value) if is_json and isinstance(value, str) else value)
        if is_url:
            text = _host(text)
        if text:
            found[text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"] += 1
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    # JSON may hold half of a surrogate pair, which cannot be encoded as UTF-8
    return text.encode("utf-8", "backslashreplace").decode()


def _host(url: str) -> str:
    """Return the host of a URL; empty if it has none, such as a text that is no URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # brackets that enclose no address
        return ""


def summed(shards: Iterable[Counted], columns: Iterable[str]) -> list[ColumnValues]:
    """Return the values of ``columns`` over all shards, in their order; columns without a value are left out."""
    totals: Counted = {}
    for shard in shards:
        for name, found in shard.items():
            totals.setdefault(name, Counter()).update(found)
    return [
        ColumnValues(
            column=name,
            what="hosts" if name.casefold() in URL_COLUMNS else "values",
            documents=totals[name].total(),
            distinct=len(totals[name]),
            most=dict(sorted(totals[name].items(), key=lambda item: (-item[1], item[0]))[:MOST]),
        )
        for wanted in columns
        for name in sorted(totals)
        if name.casefold() == wanted and totals[name]
    ]
