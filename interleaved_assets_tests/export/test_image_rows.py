"""The texts around an image, and the place that it came from."""

import pyarrow as pa
import pytest

from interleaved_assets.export.image_rows import image_rows
from interleaved_assets.model import OptionError, build_source_ref
from interleaved_assets_tests.io.row_tables import rows_table


def table(*rows: tuple[str, int, str | None]) -> pa.Table:
    """Rows of sample id, position and text; None makes an image."""
    found = [
        {
            "sample_id": sample_id,
            "position": position,
            "modality": "image" if text is None else "metadata" if position < 0 else "text",
            "text_content": text,
        }
        for sample_id, position, text in rows
    ]
    return rows_table(found)


def around(rows: pa.Table) -> list[tuple[str, int, str | None, str | None]]:
    found = image_rows(rows)
    names = ("sample_id", "position", "text_before", "text_after")
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def test_the_nearest_texts_of_the_same_sample() -> None:
    rows = table(
        *(("a", -1, ""), ("a", 0, None), ("a", 1, "one"), ("a", 2, None), ("a", 3, None), ("a", 9, "two")),
        *(("b", 0, None), ("c", 0, "three"), ("c", 5, None)),
    )
    assert around(rows) == [
        ("a", 0, None, "one"),
        ("a", 2, "one", "two"),
        ("a", 3, "one", "two"),
        ("b", 0, None, None),
        ("c", 5, "three", None),
    ]


def test_positions_decide_and_not_the_order_of_rows() -> None:
    rows = table(("a", 3, "after"), ("b", 0, None), ("a", 2, None), ("a", 1, "before"), ("b", 1, "b"), ("a", 2, "same"))
    assert around(rows) == [("b", 0, None, "b"), ("a", 2, "same", "after")]


def test_rows_without_images_and_no_rows() -> None:
    assert around(table(("a", 0, "text"))) == []
    assert around(table(("a", 0, "text")).slice(0, 0)) == []


@pytest.mark.parametrize(
    ("source_ref", "path"),
    [
        (build_source_ref("/raw/a.tar", "b/c.jpg", 512, 9), "/raw/a.tar/b/c.jpg"),
        (build_source_ref("s3://x/a.tar", "b.tiff", 512, 9, 3), "s3://x/a.tar/b.tiff#frame=3"),
        (build_source_ref("/raw/a.jpg"), "/raw/a.jpg"),
        ("no locator", "no locator"),
        (None, None),
    ],
)
def test_the_original_path(source_ref: str | None, path: str | None) -> None:
    rows = rows_table([{"sample_id": "a", "position": 0, "modality": "image", "source_ref": source_ref}])
    assert image_rows(rows)["original_path"].to_pylist() == [path]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(OptionError, match="the rows lack the columns source_ref"):
        image_rows(table(("a", 0, None)).drop_columns(["source_ref"]))
