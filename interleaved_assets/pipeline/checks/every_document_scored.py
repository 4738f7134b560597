"""Check that the table of scores has each document and each text of a shard."""

from typing import Final

from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict, lacking
from interleaved_assets.pipeline.run.counts import UNEXPLAINED
from interleaved_assets.pipeline.run.record import Record


def judge_documents_complete(record: Record, _: Basis) -> Verdict:
    """Check that each document and each text has a row of scores or the reason why not."""
    if UNEXPLAINED not in record.counted:
        return lacking("rows without a score")
    documents, texts, rows = record.counts_in.samples, record.counts_in.texts, record.counts_out.rows
    silent, reasons = record.counted[UNEXPLAINED], sum(record.errors.values())
    summary = f"{rows} rows for {documents} documents and {texts} texts, {reasons} of them with a reason instead"
    figures = {"documents": documents, "texts": texts, "score_rows": rows, "without_score": reasons}
    passed = rows == documents + texts and not silent
    return Verdict(passed, "ERROR", summary, figures | {UNEXPLAINED: silent})


EVERY_DOCUMENT_SCORED: Final = ShardCheck(
    "every_document_scored",
    "The score table has one row for each document and one for each text, with its scores or with the reason why there "
    "are none.",
    judge_documents_complete,
)
