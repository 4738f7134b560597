"""The work of document_scores: measure each document and each text of a shard."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import open_rows
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.model.columns import METADATA_POSITION
from interleaved_assets.pipeline.run.counts import RowCounter, write_scores
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.dag import rows_input
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES as NAME
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.scoring.protocol.registry import WORDS, document_fields, prepare_scorers, score_groups
from interleaved_assets.scoring.protocol.schema import scores_schema
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.scoring.protocol.texts import check_fields, score_documents, text_columns
from interleaved_assets.settings import Settings

_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of a batch: smaller than a shard, so that texts are measured while others are read."""


def prepare(settings: Settings) -> None:
    """Raise InterleavedError if a package or a list of words is missing."""
    prepare_scorers(settings.documents)


def score(shard: ShardTask) -> Work:
    """Measure each text once, and write ``document_scores/<key>.parquet`` in the order of the rows."""
    settings = shard.settings.documents
    source = rows_input(shard.read) or NORMALIZED
    fields = document_fields(settings)
    seen = RowCounter()
    scored: list[pa.Table] = [scores_schema(settings).empty_table()]
    with open_rows(shard.paths.output(source), shard.options) as rows:
        columns = text_columns(rows.schema.names, fields)
        check_fields(rows.schema, settings, f"shard {shard.key}: ")
        for table in prefetch(rows.tables(columns, min(_BATCH_BYTES, shard.settings.run.max_batch_bytes))):
            seen.add(table)
            scored.append(score_documents(table, settings))
    scores = pa.concat_tables(scored)
    groups = {WORDS: score_groups(settings)[WORDS]}  # others are null where they have no meaning
    work = write_scores(scores, shard.paths.output(NAME), shard.options, ERROR_COLUMN, groups)
    documents = pc.sum(pc.equal(scores["position"], METADATA_POSITION), min_count=0).as_py()
    made = Counts(rows=scores.num_rows, samples=documents, texts=scores.num_rows - documents)
    return work.model_copy(update={"counts_in": seen.counts, "counts_out": made})
