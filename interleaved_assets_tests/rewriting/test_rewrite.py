"""The contract of a function: texts change, text rows go, everything else is refused by name."""

import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash

from interleaved_assets.model.errors import ShardError
from interleaved_assets.rewriting.changes import change_text
from interleaved_assets.rewriting.rewrite import rewrite
from interleaved_assets_tests.rewriting.rows import IMAGE, rewritten, rows_of

ROWS = rows_of(["one", IMAGE, "two"], [None, "three"])
Function = Callable[[pa.Table], object]


def with_column(rows: pa.Table, name: str, values: object) -> pa.Table:
    place = rows.column_names.index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def with_cell(rows: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = rows[name].to_pylist()
    values[row] = value
    return with_column(rows, name, pa.array(values, rows[name].type))


def raises(_: pa.Table) -> pa.Table:
    raise ValueError("cannot parse bob@example.com")


def leaves(_: pa.Table) -> pa.Table:
    sys.exit("cannot parse bob@example.com")


REFUSED: dict[str, tuple[Function, str]] = {
    "raises": (raises, r"failed on the samples 'doc-0' to 'doc-1': ValueError in test_rewrite.py, line \d+$"),
    "leaves": (leaves, r"failed on the samples 'doc-0' to 'doc-1': SystemExit in test_rewrite.py, line \d+$"),
    "other arguments": (lambda: None, r"failed on .*: TypeError: .*takes 0 positional arguments but 1 was given"),
    "no table": (lambda rows: rows.to_pylist(), "returned list, and not a pyarrow table"),
    "nothing": (lambda _: None, "returned NoneType, and not"),
    "column less": (lambda rows: rows.drop_columns(["score"]), "returned a table without score"),
    "column more": (lambda rows: rows.append_column("n", rows["position"]), "with n, which it was not given"),
    "column twice": (lambda rows: rows.append_column("score", rows["score"]), "another order"),
    "order of columns": (lambda rows: rows.select(rows.column_names[::-1]), "with its columns in another order"),
    "other type": (
        lambda rows: with_cell(rows, "text_content", 1, "x").cast(
            pa.schema(
                [field.with_type(pa.large_string()) if field.name == "text_content" else field for field in rows.schema]
            )
        ),
        "with text_content as large_string in place of string",
    ),
    "invented row": (
        lambda rows: pa.concat_tables([rows, with_cell(rows.slice(1, 1), "position", 0, 9)]),
        "returned a row that it was not given: sample 'doc-0', position 9",
    ),
    "invented sample": (lambda rows: with_cell(rows, "sample_id", 3, "x"), "not given: sample 'x', position 2"),
    "null key": (lambda rows: with_cell(rows, "sample_id", 3, None), "not given: sample None, position 2"),
    "row twice": (
        lambda rows: pa.concat_tables([rows.slice(0, 2), rows.slice(1)]),
        "rows twice or in another order, from sample 'doc-0', position 0",
    ),
    "reordered": (
        lambda rows: rows.take(pa.array([0, 3, 2, 1, 4, 5, 6])),
        "rows twice or in another order, from sample 'doc-0', position 1",
    ),
    "samples reordered": (
        lambda rows: pa.concat_tables([rows.slice(4), rows.slice(0, 4)]),
        "rows twice or in another order, from sample 'doc-0', position -1",
    ),
    "text becomes an image": (
        lambda rows: with_cell(rows, "modality", 1, "image"),
        "not given: sample 'doc-0', position 0",
    ),
    "image dropped": (
        lambda rows: rows.filter(pc.not_equal(rows["modality"], "image")),
        "dropped a row that is no text: sample 'doc-0', position 1, image",
    ),
    "metadata dropped": (
        lambda rows: rows.slice(1),
        "dropped a row that is no text: sample 'doc-0', position -1, metadata",
    ),
    "text of an image": (
        lambda rows: with_cell(rows, "text_content", 2, "alt"),
        "changed text_content of a row: sample 'doc-0', position 1, image. Only text_content of text rows may change",
    ),
    "field of metadata": (
        lambda rows: with_cell(rows, "score", 0, 1.0),
        "changed score of a row: sample 'doc-0', position -1, metadata",
    ),
    "error cleared": (
        lambda rows: with_cell(rows, "materialize_error", 5, None),
        "changed materialize_error of a row: sample 'doc-1', position 0, text",
    ),
    "null for a text": (
        lambda rows: with_cell(rows, "text_content", 3, None),
        "a null for a text; drop the row: sample 'doc-0', position 2",
    ),
    "text for a null": (
        lambda rows: with_cell(rows, "text_content", 5, "new"),
        "a text to a row that has none: sample 'doc-1', position 0",
    ),
    "no Unicode": (
        lambda rows: with_column(rows, "text_content", pa.array([b"\xff"] * rows.num_rows).view(pa.string())),
        "returned an invalid table: .*[Ii]nvalid UTF8",
    ),
    "no list of reasons": (lambda rows: (rows, 5), "returned int as reasons, and not a list"),
    "reasons for others": (lambda rows: (rows, ["why"]), "returned 1 reasons for the 7 rows that it was given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_breaks_the_contract_is_refused_by_name(case: str) -> None:
    function, message = REFUSED[case]
    with pytest.raises(ShardError, match=rf"^shard a: the function my:own .*{message}"):
        rewrite(ROWS, {"my:own": function}, stage="rewritten", shard="a")  # type: ignore[dict-item]  # on purpose


def test_a_function_gets_no_image_bytes_and_all_else() -> None:
    seen = []
    rewrite(ROWS, {"my:own": lambda rows: (seen.append(rows), rows)[1]}, stage="rewritten", shard="a")
    assert seen[0].column_names == [name for name in ROWS.column_names if name != "binary_content"]
    assert seen[0].num_rows == ROWS.num_rows


def test_every_change_has_a_line_with_lengths_and_hashes() -> None:
    def shout(rows: pa.Table) -> pa.Table:
        """Write in capitals."""
        return with_column(rows, "text_content", pc.utf8_upper(rows["text_content"]))

    def without_two(rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        is_two = pc.fill_null(pc.equal(rows["text_content"], "TWO"), False)
        return rows.filter(pc.invert(is_two)), np.where(is_two, "it is two", None)

    result = rewrite(ROWS, {"my:shout": shout, "my:less": without_two}, stage="rewritten", shard="a")
    assert result.rows["text_content"].to_pylist() == [None, "ONE", None, None, None, "THREE"]
    assert result.rows["binary_content"].to_pylist() == [None, None, IMAGE, None, None, None]
    assert result.rows.schema == ROWS.schema
    lines = result.changes.to_pylist()
    assert [change_text(line) for line in lines] == [
        "my:shout: 3 → 3 characters, Write in capitals",
        "my:shout: 3 → 3 characters, Write in capitals",
        "my:less: 3 characters dropped, it is two",
        "my:shout: 5 → 5 characters, Write in capitals",
    ]
    assert lines[2] == {
        "sample_id": "doc-0",
        "position": 2,
        "function": "my:less",
        "kind": "dropped",
        "reason": "it is two",
        "characters_before": 3,
        "characters_after": None,
        "hash_before": xxhash.xxh3_128_hexdigest(b"TWO"),
        "hash_after": None,
    }
    assert (lines[0]["hash_before"], lines[0]["hash_after"]) == (
        xxhash.xxh3_128_hexdigest(b"one"),
        xxhash.xxh3_128_hexdigest(b"ONE"),
    )
    ledger = result.ledger.to_pylist()
    assert [(row["position"], row["reason"], row["detail"]) for row in ledger] == [(2, "my:less", "it is two")]


def test_a_document_that_loses_all_of_its_content_is_dropped_and_an_empty_one_stays() -> None:
    result = rewritten(rows_of(["***"], [], ["***", IMAGE]), "drop_boilerplate")
    assert [(row["sample_id"], row["position"]) for row in result.rows.to_pylist()] == [
        ("doc-1", -1),
        ("doc-2", -1),
        ("doc-2", 1),
    ]
    ledger = result.ledger.to_pylist()
    assert [(row["sample_id"], row["position"], row["reason"], row["detail"]) for row in ledger] == [
        ("doc-0", -1, "sample_dropped", "all of its texts were dropped"),
        ("doc-0", 0, "drop_boilerplate", "only punctuation"),
        ("doc-2", 0, "drop_boilerplate", "only punctuation"),
    ]


def test_no_rows_and_no_texts() -> None:
    for rows in (ROWS.slice(0, 0), ROWS.slice(0, 1), rows_of([IMAGE])):
        result = rewritten(
            rows, "redact_personal_data", "normalize_unicode", "normalize_whitespace", "drop_boilerplate"
        )
        assert repr(result.rows.to_pylist()) == repr(rows.to_pylist())
        assert (result.ledger.num_rows, result.changes.num_rows) == (0, 0)
