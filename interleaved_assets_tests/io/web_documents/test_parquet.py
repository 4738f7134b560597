import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io import read_shard
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.web_documents.parquet import has_url_lists, read_url_parquet
from interleaved_assets.io.web_documents.settings import UrlSettings
from interleaved_assets.model.errors import ShardError
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.io.web_documents.stores import SITE, image_url, write_store

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def obelics(path: Path, *changed: dict[str, Any]) -> Path:
    """OBELICS' columns, and one of a type that JSON does not have."""
    rows = [
        {
            "images": [image_url(number), None],
            "texts": [None, f"text {number}"],
            "metadata": json.dumps([{"src": image_url(number), "alt_text": "alt"}, None]),
            "general_metadata": json.dumps({"url": f"{SITE}/page-{number}"}),
            "fetched": WHEN,
            **change,
        }
        for number, change in enumerate(changed or ({}, {}), start=1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def read(path: Path, store: Path | None = None, **options: Any) -> pa.Table:
    settings = UrlSettings(image_store=None if store is None else str(store))
    options = ReadOptions(materialize=True, sections={"urls": settings}, **options)
    return pa.concat_tables(read_url_parquet(str(path), options))


def test_a_row_is_a_document_with_the_images_of_the_store(tmp_path: Path) -> None:
    images = write_store(tmp_path / "store", [2, 1])
    path = obelics(tmp_path / "a.parquet")
    assert has_url_lists(str(path), ReadOptions())
    rows = read(path, tmp_path / "store").to_pylist()
    assert [(row["sample_id"], row["position"], row["modality"]) for row in rows] == [
        (f"{SITE}/page-{number}", position, modality)
        for number in (1, 2)
        for position, modality in ((-1, "metadata"), (0, "image"), (1, "text"))
    ]
    assert [rows[at]["binary_content"] for at in (1, 4)] == [images[image_url(1)], images[image_url(2)]]
    assert rows[0]["fetched"] == WHEN
    assert json.loads(rows[3]["metadata"])[0]["alt_text"] == "alt"


def test_lists_that_are_null_or_of_different_lengths(tmp_path: Path) -> None:
    path = obelics(tmp_path / "a.parquet", {"images": None}, {"texts": ["a", "b", "c"]})
    rows = read(path).to_pylist()
    kinds = [(row["modality"], row["text_content"]) for row in rows if row["position"] >= 0]
    assert kinds == [("text", "text 1"), ("text", "a"), ("image", None), ("text", "b"), ("text", "c")]


@pytest.mark.parametrize(
    "list_of",
    [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda strings: pa.list_(strings, 2)],
)
@pytest.mark.parametrize("strings", [pa.string(), pa.large_string(), pa.string_view()])
def test_lists_and_strings_of_every_type_are_read(
    list_of: Callable[[pa.DataType], pa.DataType], strings: pa.DataType, tmp_path: Path
) -> None:
    lists = list_of(strings)
    columns = {"texts": pa.array([["a", None]], lists), "images": pa.array([[None, image_url(1)]], lists)}
    pq.write_table(pa.table({**columns, "alts": pa.array([["alt"]], pa.list_view(strings))}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", layout=ShardLayout(per_image_fields=("alts",))).to_pylist()
    assert [(row["modality"], row["text_content"], row["image_url"], row["alts"]) for row in rows] == [
        ("metadata", None, None, None),
        ("text", "a", None, None),
        ("image", None, image_url(1), "alt"),
    ]


def test_a_column_of_nulls_alone_is_one_of_empty_lists(tmp_path: Path) -> None:
    """Arrow gives it a type of its own, for example where no document of a file has an image."""
    pq.write_table(pa.table({"texts": [["a"], ["b"]], "images": pa.nulls(2)}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet").to_pylist()
    assert [row["text_content"] for row in rows] == [None, "a", None, "b"]


def test_own_columns_with_names_of_the_row_model_survive(tmp_path: Path) -> None:
    own = {"sample_id": "id9", "position": 3, "image_url": "keep", "position_": 4}
    metadata = read(obelics(tmp_path / "a.parquet", own)).to_pylist()[0]
    assert metadata["sample_id"] == "id9"
    assert (metadata["position_"], metadata["position__"], metadata["image_url_"]) == (4, 3, "keep")


def test_columns_that_are_no_lists_are_refused_by_name(tmp_path: Path) -> None:
    path = obelics(tmp_path / "a.parquet", {"texts": '["a"]'})
    with pytest.raises(ShardError, match=r"a\.parquet: the column texts is string, and has to be a list"):
        read(path)


def test_a_document_over_the_limit_has_an_error(tmp_path: Path) -> None:
    path = obelics(tmp_path / "a.parquet", {"texts": ["x" * 500]}, {})
    rows = read(path, limits=TarLimits(max_document_bytes=400)).to_pylist()
    assert [row["materialize_error"] for row in rows if row["position"] == -1] == [
        "document_too_large: 532 characters, over max_document_bytes 400",
        None,
    ]


def test_the_format_is_seen_from_the_columns(tmp_path: Path) -> None:
    (rows,) = read_shard(str(obelics(tmp_path / "a.parquet")))
    assert rows["modality"].to_pylist() == ["metadata", "image", "text"] * 2
    (table,) = read_shard(str(good_shard(tmp_path / "b.tar")))
    pq.write_table(table, tmp_path / "b.parquet")
    assert not has_url_lists(str(tmp_path / "b.parquet"), ReadOptions())


def test_batches_are_bounded_and_a_file_without_rows_gives_one_table(tmp_path: Path) -> None:
    path = obelics(tmp_path / "a.parquet", *[{} for _ in range(40)])
    parts = list(read_url_parquet(str(path), ReadOptions(max_batch_bytes=4000)))
    assert len(parts) > 3
    assert sum(part.num_rows for part in parts) == 120
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    (empty,) = read_url_parquet(str(path), ReadOptions())
    assert (empty.num_rows, empty.schema) == (0, parts[0].schema)


def test_lists_of_images_and_texts_are_spread_over_their_rows(tmp_path: Path) -> None:
    layout = ShardLayout(per_image_fields=("alts",), per_text_fields=("scores", "whole"))
    lists = {"images": [image_url(1), None, image_url(2)], "texts": [None, "t", None], "whole": [1, 2]}
    path = obelics(tmp_path / "a.parquet", {**lists, "alts": ["a", "b"], "scores": [0.5]}, {**lists, "alts": None})
    notes = Counter[str]()
    table = read(path, layout=layout, notes=notes)
    found = [(row["alts"], row["scores"], row["whole"]) for row in table.to_pylist()]
    assert found[:4] == [(None, None, [1, 2]), ("a", None, None), (None, 0.5, None), ("b", None, None)]
    assert found[4:] == [(None, None, [1, 2]), *[(None, None, None)] * 3]
    assert notes == {"uneven_lists": 1}


def test_the_lists_of_mmc4_are_refused_with_what_to_do(tmp_path: Path) -> None:
    row = {"url": SITE, "text_list": ["a"], "image_info": [{"raw_url": image_url(1), "matched_text_index": 0}]}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    with pytest.raises(ShardError, match="image_info and text_list are read from JSONL only: convert it"):
        list(read_shard(path))
