"""Rows with an error on their way through a stage: settled by the policy, counted, accounted for."""

from collections.abc import Callable, Iterable

import pyarrow as pa

from interleaved_assets.io.policy import apply_error_policy
from interleaved_assets.model.ledger import check_balance, drop_reasons, empty_ledger
from interleaved_assets.pipeline.record import Facts
from interleaved_assets.pipeline.stage import Shard
from interleaved_assets.pipeline.tally import Tally, UniqueKeys


def settle_errors(
    batches: Iterable[pa.Table], shard: Shard, stage: str, write: Callable[[pa.Table], None]
) -> tuple[Facts, pa.Table]:
    """Give ``write`` what the policy keeps of each batch; the facts of all of them, and the ledger of what was dropped.

    Raises:
        MaterializeError: a row has an error and the policy is ``error``.
        LedgerError: a row was neither kept nor entered in the ledger.
    """
    seen, written, keys = Tally(), Tally(), UniqueKeys()
    ledgers = [empty_ledger()]
    for table in batches:
        kept, ledger = apply_error_policy(
            table, shard.settings.errors.on_materialize_error, shard=shard.key, stage=stage
        )
        check_balance(f"shard {shard.key}, {stage}", table.num_rows, kept.num_rows, ledger)
        seen.add(table)
        written.add(kept)
        keys.add(kept)
        ledgers.append(ledger)
        write(kept)
    dropped = pa.concat_tables(ledgers)
    facts = Facts(
        counts_in=seen.counts,
        counts_out=written.counts,
        errors=dict(seen.errors),
        dropped=drop_reasons(dropped),
        counted=keys.counted,
    )
    return facts, dropped
