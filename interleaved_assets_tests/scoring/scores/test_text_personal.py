"""Personal data that texts are scored by is what the rewriting function replaces."""

import pyarrow as pa

from interleaved_assets.rewriting.personal_data import redact_personal_data
from interleaved_assets.scoring import score_documents
from interleaved_assets.scoring.protocol.settings import DocumentSettings

TEXTS = [
    "a@b.com, c.d@e.org and (555) 010-4477",
    "192.0.2.17 198.51.100.4 10.0.0.1",
    "filed under 078-05-1120; call +44 20 7946 0958",
    "version 1.2.3.4.5, price 12.50, 2024-10-01",
    None,
]
EXPECTED = {
    "emails": [2, 0, 0, 0, 0],
    "phones": [1, 0, 1, 0, 0],
    "ip_addresses": [0, 3, 0, 0, 0],
    "ssns": [0, 0, 1, 0, 0],
}


def test_neighbours_count_each_and_other_numbers_do_not() -> None:
    rows = pa.table(
        {
            "sample_id": ["doc"] * len(TEXTS),
            "position": pa.array(range(len(TEXTS)), pa.int32()),
            "modality": ["text"] * len(TEXTS),
            "text_content": TEXTS,
        }
    )
    scores = score_documents(rows, DocumentSettings(scorers=("personal_data",)))
    found = {name: scores[name].to_pylist() for name in EXPECTED}
    assert found == {name: [sum(counts), *counts] for name, counts in EXPECTED.items()}
    _, reasons = redact_personal_data(rows)
    assert reasons == ["2 [EMAIL], 1 [PHONE]", "3 [IP_ADDRESS]", "1 [SSN], 1 [PHONE]", None, None]
