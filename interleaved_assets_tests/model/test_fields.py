"""Fields of documents by their paths, and what is said of one that no document has."""

import pyarrow as pa

from interleaved_assets.model.fields import absent_field, field_values, root_of

ROWS = pa.table(
    {
        "sample_id": ["a", "b"],
        "stats": [{"copies": 3, "of": {"lines": 4}}, None],
        "a.b": ["dotted", None],
    }
)


def test_values_by_path() -> None:
    assert field_values(ROWS, "stats.of.lines").to_pylist() == [4, None]
    assert field_values(ROWS, "a.b").to_pylist() == ["dotted", None]
    assert field_values(ROWS, "stats.pages") is None
    assert field_values(ROWS, "a.b.c") is None
    assert field_values(ROWS, "other") is None
    assert root_of(ROWS.column_names, "stats.of.lines") == "stats"


def test_a_field_that_no_document_has_is_told_with_similar_ones() -> None:
    assert absent_field(ROWS.schema, "stats.of.lines") is None
    assert absent_field(ROWS.schema, "a.b") is None
    assert (
        absent_field(ROWS.schema, "stats.copis") == "no document has the field 'stats.copis'; did you mean stats.copies"
    )
    assert absent_field(ROWS.schema, "qqqqq") == "no document has the field 'qqqqq'"
    assert absent_field(ROWS.schema, "sample_id") is None
