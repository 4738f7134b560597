"""Personal data in texts: e-mail addresses, telephone numbers, IPv4 addresses and US social security numbers."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from interleaved_assets.scoring.protocol.scorer import Range, Scorer, register_scorer
from interleaved_assets.scoring.texts.batch import TextBatch
from interleaved_assets.scoring.texts.characters import DIGIT
from interleaved_assets.scoring.texts.personal_data import count_replaced, has_personal_data, redacted

_COLUMNS: Final = {"emails": "[EMAIL]", "phones": "[PHONE]", "ip_addresses": "[IP_ADDRESS]", "ssns": "[SSN]"}
"""The columns, and what the rewriting function puts in place of what they count."""
_FEWEST_DIGITS: Final = 4
"""Digits of the shortest of these that has no @: an IPv4 address such as 1.2.3.4."""
_MEANINGS: Final = {
    "emails": "E-mail addresses, from 0 (MINT-1T, NVIDIA's pipeline).",
    "phones": "Telephone numbers of North America, such as (555) 010-9999, and international ones with +, from 0 "
    "(NVIDIA's pipeline).",
    "ip_addresses": "IPv4 addresses, from 0 (MINT-1T, NVIDIA's pipeline).",
    "ssns": "US social security numbers, such as 123-45-6789, from 0 (NVIDIA's pipeline).",
}


def _measure(batch: TextBatch) -> Sequence[np.ndarray | pa.Array]:
    """Count what the function ``redact_personal_data`` would replace."""
    # every pattern needs an @ or at least four digits, which most texts lack
    likely = np.flatnonzero((batch.count(batch.codes == ord("@")) > 0) | (batch.count_class(DIGIT) >= _FEWEST_DIGITS))
    texts = batch.contents.take(pa.array(likely))
    found = has_personal_data(texts)
    places = likely[found.to_numpy(zero_copy_only=False)]
    before = texts.filter(found)
    counts = count_replaced(before, redacted(before))
    columns = []
    for name in _COLUMNS.values():
        of_texts = np.zeros(batch.texts, dtype=np.int64)
        of_texts[places] = counts[name].to_numpy(zero_copy_only=False)
        columns.append(batch.with_totals(of_texts))
    return columns


register_scorer(
    Scorer(
        "personal_data",
        dict.fromkeys(_COLUMNS, "int64"),
        lambda _: _measure,
        about="e-mail addresses, telephone, IP and social security numbers",
        ranges=dict.fromkeys(_COLUMNS, Range(low=0)),
        meanings=_MEANINGS,
        section="documents",
        after="nemotron",
    )
)
