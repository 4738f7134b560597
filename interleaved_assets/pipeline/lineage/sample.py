"""Trace one sample: its rows at every stage, and the reason of every row that was dropped."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.archive.index import TarMember
from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.io.parquet.source import ParquetSource, open_parquet
from interleaved_assets.io.tar.layout import member_key
from interleaved_assets.model.cells import row_values
from interleaved_assets.model.columns import METADATA_POSITION
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError, error_code
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.run.record import Record, record_of
from interleaved_assets.pipeline.run.stored_records import read_records
from interleaved_assets.pipeline.run.threads import READERS, found_or_error
from interleaved_assets.pipeline.stages.dag import ROW_STAGES
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES, NORMALIZED
from interleaved_assets.rewriting.changes import CHANGED, change_text
from interleaved_assets.settings import StorageSettings
from interleaved_assets.settings.shard_paths import CHANGES, ShardPaths

_ID: Final = "sample_id"
_ADVICE: Final = "Materialize its shard again."
_KEPT: Final = "kept"
_SCORED: Final = "scored"
_EXPORTED: Final = "exported"


class TracedRow(NamedTuple):
    """One row of a sample at one stage."""

    position: int
    modality: str
    outcome: str
    """``kept``, ``changed``, ``scored``, ``exported``, ``dropped: <reason>``, or ``error: <code>`` if the row or
    image has a stored error."""
    scores: dict[str, float]
    """The scores in the stage's output, by name."""
    measured: float | None
    """The value for which a threshold dropped the row."""
    threshold: float | None
    detail: str
    """The stored error, the detail of the ledger, the changes of a text, or the tar and member of an exported image."""

    @property
    def is_plain(self) -> bool:
        """True if the row was neither dropped nor has an error."""
        return self.outcome in (_KEPT, _SCORED)


class SampleInTar(NamedTuple):
    """The members of one sample in a final tar."""

    uri: str
    """URI of the tar; if the final tar is split, of one of its parts."""
    members: list[TarMember]
    """The sample's JSON, its images, and members that no document names, in the order of the tar."""


class StageTrace(NamedTuple):
    """One sample at one stage: ``kept`` are its rows in the stage's output, ``dropped`` those in the stage's ledger."""

    record: Record
    kept: pa.Table | None
    """None if the output is not a table (final tars)."""
    dropped: pa.Table
    left: int
    """Number of the sample's rows that the stage has kept."""
    changes: pa.Table | None = None
    """Changes that functions made in the sample's texts; None if the stage changes none."""
    in_tar: SampleInTar | InterleavedError | None = None
    """The sample in a final tar, or the error if it cannot be read; None if the stage writes tables or kept no row."""

    def rows(self) -> list[TracedRow]:
        """Return the sample's rows, kept and dropped, by position."""
        kept: Iterable[Mapping[str, Any]] = [] if self.kept is None else row_values(self.kept)
        changed: dict[int, list[str]] = defaultdict(list)
        for line in [] if self.changes is None else self.changes.to_pylist():
            changed[line["position"]].append(change_text(line))
        found = [
            row._replace(outcome=CHANGED, detail="; ".join(changed[row.position]))
            if row.modality == "text" and row.outcome == _KEPT and row.position in changed
            else row
            for row in (_kept_row(values, self.record.stage) for values in kept)
        ]
        found += [
            TracedRow(
                row["position"],
                row["modality"],
                f"dropped: {row['reason']}",
                {},
                row["measured"],
                row["threshold"],
                row["detail"] or "",
            )
            for row in self.dropped.to_pylist()
        ]
        return sorted(found, key=lambda row: row.position)


def _kept_row(row: Mapping[str, Any], stage: str) -> TracedRow:
    if "tar_file" in row:
        place = f"{row['tar_file']}: {row['member']}"
        return TracedRow(row["position"], "image", _EXPORTED, {}, None, None, place)
    # a table of scores has no modality: it has only images, or documents and their texts
    of_texts = "document" if row["position"] == METADATA_POSITION else "text"
    modality = row.get("modality") or (of_texts if stage == DOCUMENT_SCORES else "image")
    error = row.get("score_error") if "modality" not in row else row["materialize_error"]
    outcome = f"error: {error_code(error)}" if error else _KEPT if "modality" in row else _SCORED
    shown = float if modality == "image" else (int, float)  # the size of an image is left out
    numbers = {name: value for name, value in row.items() if isinstance(value, shown) and name != "position"}
    scores = {} if "modality" in row else numbers
    return TracedRow(row["position"], modality, outcome, scores, None, None, error or "")


def trace_sample(sample_id: str, paths: ShardPaths, stages: Iterable[str]) -> list[StageTrace]:
    """Return the rows of ``sample_id`` at each of ``stages`` of one shard; empty if the shard does not contain it.

    Of row groups without the sample only the ids are read, and of no row the image bytes.
    """
    traces = []
    rows = 0  # number of rows of the sample after the last stage with rows, which tars are made from
    for record in read_records(paths, stages).values():
        kept, in_tar = None, None
        if record.columns:
            kept = _rows_of(sample_id, record.outputs["rows"].uri, paths.options)
        dropped = empty_ledger()
        if record.dropped:
            dropped = _rows_of(sample_id, record.outputs["ledger"].uri, paths.options)
        if kept is not None:
            left = kept.num_rows
            rows = left if record.stage in ROW_STAGES else rows
        elif (left := rows - dropped.num_rows) > 0:
            in_tar = _in_tar(sample_id, paths, record)
        changes = _rows_of(sample_id, record.outputs[CHANGES].uri, paths.options) if CHANGES in record.outputs else None
        traces.append(StageTrace(record, kept, dropped, left, changes, in_tar))
    return traces if any(trace.dropped.num_rows or trace.left for trace in traces) else []


def _in_tar(sample_id: str, paths: ShardPaths, record: Record) -> SampleInTar | InterleavedError:
    """Return the members of a sample that ``final_tars`` kept, or the error if they cannot be read.

    Only headers of tars are read. Final tars are often moved elsewhere: the error is returned, not raised, so that the
    stages before are shown nevertheless.
    """
    start = f"{member_key(sample_id)}."
    try:
        for tar in record.rows_files.values():
            with open_tar(tar.uri, paths.options, by_ranges=True) as source:
                if members := [member for member in source.index.members if member.name.startswith(start)]:
                    return SampleInTar(tar.uri, members)
    except (StorageError, ShardError) as error:
        return error
    return ShardError(
        f"shard {paths.key}: {record.rows_uri} has no {start}json, although its record counts the sample. "
        "Materialize final_tars again."
    )


def find_sample(
    sample_id: str, keys: Iterable[str], storage: StorageSettings, stages: Collection[str]
) -> Iterator[tuple[str, list[StageTrace] | InterleavedError]]:
    """Yield each of ``keys`` whose shard contains ``sample_id``, with the sample's rows at each stage.

    Several shards can have the same sample id. Shards are searched in parallel and yielded in the order of ``keys``.
    For a shard without the sample, only the record and the ids of ``normalized`` are read. A shard that cannot be read
    is yielded with its error.
    """

    def trace(key: str) -> list[StageTrace]:
        paths = storage.shard(key)
        return trace_sample(sample_id, paths, stages) if _may_have(sample_id, paths) else []

    return filter(itemgetter(1), found_or_error(trace, keys, threads=READERS))


def _may_have(sample_id: str, paths: ShardPaths) -> bool:
    """Return False if ``normalized`` neither kept nor dropped the sample: no later stage has it either."""
    record = record_of(paths, NORMALIZED)
    if record is None:  # later stages may still have their records
        return True
    for role in ("rows", "ledger") if record.dropped else ("rows",):
        with open_parquet(record.outputs[role].uri, paths.options, advice=_ADVICE) as source:
            if groups_with([sample_id], source):
                return True
    return False


def _rows_of(sample_id: str, uri: str, options: Mapping[str, object]) -> pa.Table:
    with open_parquet(uri, options, advice=_ADVICE) as source:
        columns = [
            field.name
            for field in source.schema
            if not pa.types.is_large_binary(field.type) and not field.type.num_fields
        ]
        rows = source.read(columns, groups_with([sample_id], source))
        return rows.filter(pc.equal(rows[_ID], sample_id))


def groups_with(sample_ids: Collection[str], source: ParquetSource) -> list[int]:
    """Return the numbers of the row groups that have one of the samples; only ids are read."""
    is_wanted = pc.is_in(source.read([_ID])[_ID], pa.array(sample_ids, pa.string()))
    ends = np.cumsum([group.rows for group in source.row_groups])
    rows = np.flatnonzero(is_wanted.to_numpy())
    return np.unique(np.searchsorted(ends, rows, side="right")).tolist()
