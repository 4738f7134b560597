"""The function that replaces personal data in texts: e-mail addresses, SSNs, IPv4 addresses and phone numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.rewriting.texts import is_text, with_texts
from interleaved_assets.scoring.texts.personal_data import count_replaced, has_personal_data, redacted


def redact_personal_data(rows: pa.Table) -> tuple[pa.Table, list[str | None]]:
    """Replace e-mail addresses, SSNs, IPv4 addresses and phone numbers by [EMAIL], [SSN], [IP_ADDRESS] and [PHONE]."""
    texts, reasons = rows["text_content"].combine_chunks(), np.full(rows.num_rows, None, object)
    found = np.asarray(has_personal_data(texts)) & np.asarray(is_text(rows).combine_chunks())
    if not found.any():
        return rows, []
    before = texts.filter(pa.array(found))
    after = redacted(before)
    reasons[found] = _reasons(before, after)
    return with_texts(rows, pc.replace_with_mask(texts, pa.array(found), after)), reasons.tolist()


def _reasons(before: pa.Array, after: pa.Array) -> list[str]:
    """Return what was replaced in each text, such as ``2 [EMAIL], 1 [PHONE]``."""
    counts = {name: found.to_pylist() for name, found in count_replaced(before, after).items()}
    rows = range(len(before))
    return [", ".join(f"{found[row]} {name}" for name, found in counts.items() if found[row]) for row in rows]
