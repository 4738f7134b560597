"""Documents of ordered blocks as rows."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from interleaved_assets.io.rows import blocks
from interleaved_assets.io.rows.blocks import Block, BlockDocument, block_schema, block_tables
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets_tests.defects import stand_in

COLUMNS = pa.schema([("title", pa.string()), ("pages", pa.int32()), ("image_url", pa.string()), ("alt", pa.string())])


def test_blocks_become_rows_in_their_order() -> None:
    missing = row_error("missing_source", "the page has no such image")
    document = BlockDocument(
        "doc",
        (
            Block("text", "First."),
            Block("image", content=b"\x89PNG", content_type="image/png", url="https://a/1.png", fields={"alt": "one"}),
            Block("table", "| a |\n| - |", source_ref='{"path": "other"}'),
            Block("table", "<table></table>", content_type="text/html"),
            Block("image", url="https://a/2.png", error=missing),
        ),
        fields={"title": "A title", "pages": 3, "unknown": "left out"},
        source_ref='{"path": "a.warc"}',
    )
    (table,) = block_tables([document], COLUMNS)
    assert table.schema == block_schema(COLUMNS) == pa.schema([*INTERLEAVED_SCHEMA, *COLUMNS])
    assert table["position"].to_pylist() == [-1, 0, 1, 2, 3, 4]
    assert table["modality"].to_pylist() == ["metadata", "text", "image", "table", "table", "image"]
    assert table["content_type"].to_pylist() == [
        "application/json", "text/plain", "image/png", "text/markdown", "text/html", None,
    ]  # fmt: skip
    assert table["text_content"].to_pylist() == [None, "First.", None, "| a |\n| - |", "<table></table>", None]
    assert table["binary_content"].to_pylist() == [None, None, b"\x89PNG", None, None, None]
    assert table["materialize_error"].to_pylist() == [None] * 5 + [missing]
    # the bytes of the document are not those of its images
    own = '{"path": "a.warc"}'
    assert table["source_ref"].to_pylist() == [own, own, None, '{"path": "other"}', own, None]
    assert table["title"].to_pylist() == ["A title"] + [None] * 5
    assert table["pages"].to_pylist() == [3] + [None] * 5
    assert table["image_url"].to_pylist() == [None, None, "https://a/1.png", None, None, "https://a/2.png"]
    assert table["alt"].to_pylist() == [None, None, "one", None, None, None]


def test_a_document_without_blocks_has_its_metadata_row_with_its_error() -> None:
    error = row_error("document_too_large", "200 MB")
    (table,) = block_tables([BlockDocument("a", error=error)], COLUMNS)
    assert table.select(["sample_id", "position", "materialize_error"]).to_pylist() == [
        {"sample_id": "a", "position": -1, "materialize_error": error}
    ]


def test_without_documents_there_is_one_table_without_rows() -> None:
    (table,) = block_tables([], COLUMNS)
    assert (table.num_rows, table.schema) == (0, block_schema(COLUMNS))


def test_repeated_ids_get_a_number_and_never_one_that_is_taken() -> None:
    notes = Counter[str]()
    ids = ["a", "a~2", "a", "b", "a", "a~2"]
    (table,) = block_tables([BlockDocument(one) for one in ids], COLUMNS, notes=notes)
    assert table["sample_id"].to_pylist() == ["a", "a~2", "a~3", "b", "a~4", "a~2~2"]
    assert notes == {"repeated_sample_ids": 3}


def test_documents_that_all_have_one_id_are_numbered_in_time_with_their_number() -> None:
    """With the square of it, these would take minutes; a crawl that has one address often would take hours."""
    [table] = block_tables([BlockDocument("a")] * 30_000, pa.schema([]))
    assert table["sample_id"][-1].as_py() == "a~30000"


def test_tables_hold_whole_documents_up_to_the_limit_and_one_that_is_larger_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = [1000, 1000, 5000, 10, 10]
    documents = [BlockDocument(str(at), (Block("image", content=bytes(size)),)) for at, size in enumerate(sizes)]
    tables = list(block_tables(documents, COLUMNS, max_batch_bytes=3000))
    assert [sorted(set(table["sample_id"].to_pylist())) for table in tables] == [["0", "1"], ["2"], ["3", "4"]]
    assert {table.schema for table in tables} == {block_schema(COLUMNS)}
    stand_in(monkeypatch, blocks, "_STEP_BYTES", 3000)  # without a limit, steps are put together
    (whole,) = block_tables(documents, COLUMNS)
    assert whole.equals(pa.concat_tables(tables))


def test_documents_are_read_as_the_tables_are_taken() -> None:
    read = []

    def documents() -> Iterator[BlockDocument]:
        for at in range(100):
            read.append(at)
            yield BlockDocument(str(at), (Block("image", content=bytes(1000)),))

    next(block_tables(documents(), COLUMNS, max_batch_bytes=3000))
    assert len(read) <= 4


def test_half_a_surrogate_pair_is_an_error_of_its_row() -> None:
    (table,) = block_tables([BlockDocument("a", (Block("text", "x\ud800y"), Block("text", "fine")))], COLUMNS)
    assert table["text_content"].to_pylist() == [None, "x?y", "fine"]
    assert [error and error.partition(":")[0] for error in table["materialize_error"].to_pylist()] == [
        None,
        "invalid_text",
        None,
    ]


def test_a_reserved_name_cannot_pass_through() -> None:
    with pytest.raises(ValueError, match="modality, position"):
        block_schema(pa.schema([("position", pa.int32()), ("modality", pa.string()), ("fine", pa.string())]))
