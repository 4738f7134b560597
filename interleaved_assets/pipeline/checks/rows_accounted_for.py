"""Check that every row of a shard was kept, or dropped with a reason."""

from typing import Final

from interleaved_assets.model.errors import LedgerError
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict
from interleaved_assets.pipeline.run.record import Record


def judge_balance(record: Record, _: Basis) -> Verdict:
    rows_in, kept, dropped = record.counts_in.rows, record.counts_out.rows, sum(record.dropped.values())
    return Verdict(
        rows_in == kept + dropped,
        "ERROR",
        f"{rows_in} rows in = {kept} kept + {dropped} dropped with a reason",
        {"rows_in": rows_in, "rows_kept": kept, "rows_dropped": dropped},
    )


ROWS_ACCOUNTED_FOR: Final = ShardCheck(
    "rows_accounted_for",
    "Rows in = rows kept + rows in the ledger of drops: nothing is lost without a reason. A shard that breaks this is "
    "not materialized.",
    judge_balance,
    (LedgerError,),
)
