"""The facts of shards for the reports, from what the stages have stored."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

import pyarrow as pa

from interleaved_assets.io.storage import exists
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.run.record import Record, record_of
from interleaved_assets.pipeline.run.stored_records import read_valid_records
from interleaved_assets.pipeline.run.threads import TABLE_READERS, parallel_map
from interleaved_assets.pipeline.stages.dag import IMAGE_SCORE_STAGES, LEDGER_STAGES, rows_input, stage_dag
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES, FILTERED, FINAL_TARS, IMAGE_SCORES, NORMALIZED
from interleaved_assets.pipeline.stages.outputs import find_scores_of, find_table, read_ledgers
from interleaved_assets.pipeline.status.dataset_status import DatasetStatus
from interleaved_assets.pipeline.status.status import State, Status
from interleaved_assets.reporting.figures.facts import ShardFacts
from interleaved_assets.selection.positions import join_scores
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import SAMPLES, ShardPaths

UNREADABLE: Final = Status(State.UNREADABLE, "unreadable: a record or an output cannot be read")
_SAMPLE_TABLE: Final = "sample_scores"


def shard_facts(key: str, settings: Settings, records: Mapping[str, Record] | None = None) -> ShardFacts:
    """Return the facts of one shard with thumbnails, from its mutually consistent records, without its status.

    ``records`` are its valid ones, if they were read before.
    """
    paths = settings.storage.shard(key)
    return _facts(records or read_valid_records(paths, stage_dag(settings)), paths, thumbnails=True)


def all_shard_facts(dataset: DatasetStatus) -> Iterator[ShardFacts]:
    """Yield the facts and the status of each shard of ``dataset``, in the order of the keys.

    Counts and ledgers end at the last stage whose record is of the same rows as those before, since a run may be
    working on the shard. Several shards are read in parallel, and few are held. A failed shard has the error of its run
    as its problem. A shard that cannot be read has the status :data:`UNREADABLE` and the error as its problem.
    """

    def facts(key: str) -> ShardFacts:
        try:
            records = dataset.valid_records(key)
            status = dataset.status(key, records)
            paths = dataset.storage.shard(key)
            problem = dataset.problem_of(key, status)
            found = dataclasses.replace(_facts(records, paths), status=status, problem=problem)
            if status.state is State.VANISHED and not found.published:
                found = dataclasses.replace(found, published=_left_over(paths))
            return found
        except (InterleavedError, pa.ArrowException) as error:
            return ShardFacts(key, status=UNREADABLE, problem=" ".join(str(error).split()))

    return parallel_map(facts, dataset.keys, threads=TABLE_READERS)


def _facts(records: Mapping[str, Record], paths: ShardPaths, *, thumbnails: bool = False) -> ShardFacts:
    published = published_versions(records)
    records = _of_the_same_rows(records)
    first = records.get(NORMALIZED)
    if first is None:
        return ShardFacts(paths.key, published=published)
    dropping = [name for name in LEDGER_STAGES if name in records]
    tables = _tables_of_scores(records, paths, thumbnails=thumbnails)
    images = [table for name, table in tables.items() if name in IMAGE_SCORE_STAGES and table is not None]
    return ShardFacts(
        key=paths.key,
        counts_in=first.counts_in,
        counts_out=records[dropping[-1]].counts_out,
        counted_to=dropping[-1],
        rows_stage=rows_input(records.keys() - {FILTERED}) or NORMALIZED,
        published=published,
        scores=reduce(join_scores, images) if images else None,
        # a ledger is not read if its record says that it is empty
        ledger=read_ledgers(paths, [name for name in dropping if records[name].dropped]),
        sample_scores=tables.get(_SAMPLE_TABLE),
        documents=tables.get(DOCUMENT_SCORES),
        not_stored=tuple(name for name, table in tables.items() if table is None),
        errors=row_errors(records),
    )


def published_versions(records: Mapping[str, Record]) -> tuple[str, ...]:
    final = records.get(FINAL_TARS)
    if final is None:
        return ()
    versions = [final.source.version] if final.source else []
    if not final.counts_out.rows:
        return tuple(versions)  # all shards without kept rows have the same final tar
    # the same content is always split in the same way
    return (*versions, "final:" + "+".join(tar.content for tar in final.rows_files.values()))


def _left_over(paths: ShardPaths) -> tuple[str, ...]:
    """Return the result of :func:`published_versions` for a final tar with another stamp than its record names.

    A tree that was copied has such tars. No run compares the contents again if the raw shard is gone.
    """
    final = record_of(paths, FINAL_TARS)
    if final is None or not any(exists(tar.uri, paths.options) for tar in final.rows_files.values()):
        return ()
    return published_versions({FINAL_TARS: final})


def _of_the_same_rows(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return ``records`` without those whose input rows are not the present output rows of the stage before.

    While a shard is being made again, some of its records are old and some are new, and their counts do not add up.
    Inputs other than rows, such as the scores of a selection, do not matter here.
    """
    found: dict[str, Record] = {}
    for name, record in records.items():
        rows = {source: version for source, version in record.inputs.items() if source in LEDGER_STAGES}
        if all(source in found and found[source].data_version == version for source, version in rows.items()):
            found[name] = record
    return found


def _tables_of_scores(
    records: Mapping[str, Record], paths: ShardPaths, *, thumbnails: bool
) -> dict[str, pa.Table | None]:
    """Return the tables of scores that ``records`` name, by folder; None for a table that was deleted."""
    tables = {
        name: find_scores_of(name, paths, thumbnails=thumbnails) for name in IMAGE_SCORE_STAGES if name in records
    }
    if DOCUMENT_SCORES in records:
        tables[DOCUMENT_SCORES] = find_table(paths.output(DOCUMENT_SCORES), paths, DOCUMENT_SCORES)
    if FILTERED in records and SAMPLES in records[FILTERED].outputs:
        tables[_SAMPLE_TABLE] = find_table(paths.other(SAMPLES), paths, FILTERED)
    return tables


def row_errors(records: Mapping[str, Record]) -> dict[str, int]:
    """Return the rows of a shard to which ``normalized`` or ``image_scores`` gave an error, by code.

    ``records`` has that of ``normalized``.
    """
    # an error of a row that normalization kept also counts in the scores, and must count once
    normalized = records[NORMALIZED]
    counts: dict[str, int] = dict(normalized.errors)
    for code, count in records[IMAGE_SCORES].errors.items() if IMAGE_SCORES in records else ():
        counts[code] = max(count + normalized.dropped.get(code, 0), counts.get(code, 0))
    return counts
