"""The error policy: keep or drop rows with a ``materialize_error``, or raise."""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final, get_args

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import NOT_IN_SOURCE, ErrorPolicy, MaterializeError, OptionError, error_code
from interleaved_assets.model.ledger import empty_ledger, error_ledger
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.source_ref import parse_source_ref

logger = logging.getLogger(__name__)

POLICIES: Final[tuple[str, ...]] = get_args(ErrorPolicy)
_KEPT_BY_WARN: Final = ("image_not_in_archive", "image_not_in_store")


def check_policy(policy: str) -> None:
    """Check that ``policy`` is an :data:`~interleaved_assets.model.errors.ErrorPolicy`."""
    if policy not in POLICIES:
        raise OptionError(f"on_materialize_error must be one of {', '.join(POLICIES)}, got {policy!r}")


def apply_error_policy(table: pa.Table, policy: ErrorPolicy, *, shard: str, stage: str) -> tuple[pa.Table, pa.Table]:
    """Apply the error policy; return the rows that stay and the ledger of the dropped ones.

    The policy covers every row with a ``materialize_error``, set by this stage or an earlier one. ``warn`` keeps all
    rows and logs the number of errors by code; ``drop_row`` drops these rows; ``drop_sample`` drops all rows of their
    samples. A row whose code is in :data:`.NOT_IN_SOURCE` is dropped alone under every policy, except that ``warn``
    keeps images, which have their address. Image bytes are not copied.

    Args:
        table: rows of whole samples; without the column ``materialize_error`` nothing is dropped.
        policy: the error policy.
        shard: name for messages.
        stage: the ``stage`` in the ledger.

    Raises:
        MaterializeError: policy ``error`` and a row has an error; the message names the first such row.
        OptionError: ``policy`` is unknown, or a required column is missing or null.
    """
    check_policy(policy)
    if not isinstance(table, pa.Table) or "materialize_error" in table.column_names:
        check_rows(table, (), "apply_error_policy")
    errors = table["materialize_error"] if "materialize_error" in table.column_names else None
    if errors is None or errors.null_count == len(errors):
        return table, empty_ledger()
    codes_dropped = [code for code in NOT_IN_SOURCE if policy != "warn" or code not in _KEPT_BY_WARN]
    absent = pc.fill_null(_has_code(errors, codes_dropped), False)
    if pc.any(absent).as_py():
        rows = filter_rows(table, pc.invert(absent))
        kept, dropped = apply_error_policy(rows, policy, shard=shard, stage=stage)
        ledger = error_ledger(table.select([*ROW_KEY, "materialize_error"]).filter(absent), stage)
        return kept, pa.concat_tables([ledger, dropped])
    bad = pc.is_valid(errors)
    if policy == "error":
        raise _error_of(table.slice(pc.index(bad, pa.scalar(True)).as_py(), 1), shard)
    codes = Counter(error_code(error) for error in errors.filter(bad).to_pylist())
    summary = ", ".join(f"{count} × {code}" for code, count in codes.most_common())
    if policy == "warn":
        logger.warning("%s: %s: rows with errors are kept: %s", shard, stage, summary)
        return table, empty_ledger()
    if policy == "drop_sample":
        bad = pc.is_in(table["sample_id"], value_set=pc.unique(table["sample_id"].filter(bad)))
    named = table.select([*ROW_KEY, "materialize_error"])
    logger.info("%s: %s: %s drops %d rows for %s", shard, stage, policy, pc.sum(bad).as_py(), summary)
    return filter_rows(table, pc.invert(bad)), error_ledger(named.filter(bad), stage)


def _has_code(errors: pa.ChunkedArray, codes: Sequence[str]) -> pa.ChunkedArray:
    """Return whether each error has one of ``codes``; null without an error."""
    return reduce(pc.or_, [pc.starts_with(errors, f"{code}: ") for code in codes])


def _error_of(row: pa.Table, shard: str) -> MaterializeError:
    return MaterializeError(
        shard=shard,
        sample_id=row["sample_id"][0].as_py(),
        position=row["position"][0].as_py(),
        member=_member(row["source_ref"][0].as_py() if "source_ref" in row.column_names else None),
        error=row["materialize_error"][0].as_py(),
    )


def _member(source_ref: str | None) -> str | None:
    try:
        ref = parse_source_ref(source_ref)
    except ValueError:
        return source_ref  # the row's error may be this invalid locator, so show its text
    return ref.member or ref.path
