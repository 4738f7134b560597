from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from interleaved_assets.io import read_shard


def test_pages_have_their_pictures_and_not_their_menus(drawn: Callable[[str], Path]) -> None:
    table = pa.concat_tables(read_shard(str(drawn("crawl-2/archive.warc.gz"))))
    rows = table.to_pylist()
    assert len(table["sample_id"].unique()) == 10  # and not the page with status 404
    images = [row for row in rows if row["modality"] == "image"]
    assert len(images) == 20
    assert sum(row["binary_content"] is not None for row in images) == 18
    codes = Counter((row["materialize_error"] or "none").partition(":")[0] for row in rows)
    assert (codes["image_not_in_archive"], codes["boilerplate"]) == (2, 10)
    texts = [row["text_content"] for row in rows if row["text_content"]]
    assert not [text for text in texts if "cookies" in text or text == "Harbour"]
