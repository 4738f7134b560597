from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from interleaved_assets.io import read_shard


def test_texts_stand_around_the_pictures_and_the_scan_has_none(drawn: Callable[[str], Path]) -> None:
    rows = pa.concat_tables(read_shard(str(drawn("mint/report.pdf")))).to_pylist()
    assert (rows[0]["pages"], rows[0]["pages_without_text"], rows[0]["title"]) == (6, [6], "Report of the demo")
    for page in range(1, 6):
        kinds = [row["modality"] for row in rows if row["page"] == page]
        assert kinds == ["text", "text", "image", "text", "text", *(["table"] if page == 2 else [])]
    assert [row["modality"] for row in rows if row["page"] == 6] == ["image"]
    assert {row["content_type"] for row in rows if row["modality"] == "image"} == {"image/jpeg"}
