"""Bringing the rows of a shard to a schema, with errors that name the shard."""

import pyarrow as pa

from interleaved_assets.model.errors import ShardError
from interleaved_assets.model.schema import align_or_reconcile


def align_shard(table: pa.Table, target: pa.Schema | None, shard: str) -> pa.Table:
    """``table`` aligned to ``target``, or only reconciled where that is None.

    Raises:
        ShardError: a value does not fit its type, or is null where it may not be; the message begins with ``shard``.
    """
    try:
        return align_or_reconcile(table, target)
    except (ShardError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ShardError(f"{shard}: {error}") from error
