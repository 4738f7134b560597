"""The ledger of changes: one line for each text row that a function changed or dropped, without its text."""

from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa
import xxhash

ChangeKind = Literal["changed", "dropped"]
CHANGED: Final[ChangeKind] = "changed"
DROPPED: Final[ChangeKind] = "dropped"
CHANGES_SCHEMA: Final = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("function", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("characters_before", pa.int64()),
        pa.field("characters_after", pa.int64()),
        pa.field("hash_before", pa.string()),
        pa.field("hash_after", pa.string()),
    ]
)
"""``kind`` is ``changed`` or ``dropped``. A hash is the 128-bit XXH3 of the text in UTF-8, as 32 hex digits. A dropped
row has no hash and no length after it; a row without a text has none before it."""


def change_lines(
    rows: pa.Table, function: str, kind: ChangeKind, reasons: Sequence[str], after: Sequence[str | None]
) -> pa.Table:
    """Return the lines for ``rows``, which have the text before; ``after`` has the text after, None if dropped."""
    before, count = rows["text_content"].to_pylist(), rows.num_rows
    return pa.table(
        {
            "sample_id": rows["sample_id"],
            "position": rows["position"],
            "function": [function] * count,
            "kind": [kind] * count,
            "reason": list(reasons),
            "characters_before": [_length(text) for text in before],
            "characters_after": [_length(text) for text in after],
            "hash_before": [_hash(text) for text in before],
            "hash_after": [_hash(text) for text in after],
        },
        schema=CHANGES_SCHEMA,
    )


def change_text(line: dict[str, object]) -> str:
    """Return a line of the ledger in words, such as ``redact_personal_data: 40 → 31 characters, 1 [EMAIL]``."""
    before, after = line["characters_before"], line["characters_after"]
    if line["kind"] == DROPPED:
        return f"{line['function']}: {before or 0:,} characters dropped, {line['reason']}"
    return f"{line['function']}: {before:,} → {after:,} characters, {line['reason']}"


def _length(text: str | None) -> int | None:
    return None if text is None else len(text)


def _hash(text: str | None) -> str | None:
    return None if text is None else xxhash.xxh3_128_hexdigest(text.encode())
