"""Fields of documents by their paths, and what is said of one that no document has."""

import json

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


def json_column(*values: object) -> pa.Table:
    texts = [None if one is None else json.dumps(one) for one in values]
    return pa.table({"page": pa.array(texts, pa.json_())})


def test_values_within_json() -> None:
    """A column is JSON if its objects have different keys."""
    rows = json_column({"en": 0.93}, {"de": 0.5, "en": 1}, {"de": {"at": 2}}, None, "text")
    assert field_values(rows, "page.en").to_pylist() == [0.93, 1.0, None, None, None]
    assert field_values(rows, "page.de").to_pylist() == [None, "0.5", '{"at": 2}', None, None]
    assert field_values(rows, "page.de.at").to_pylist() == [None, None, 2, None, None]
    assert field_values(rows, "page.fr").to_pylist() == [None] * 5
    assert absent_field(rows.schema, "page.fr") is None  # its keys are not in the schema
    assert absent_field(rows.schema, "pages.fr") == "no document has the field 'pages.fr'; did you mean page"


def test_mixed_and_long_values_of_json() -> None:
    assert field_values(json_column("a", 3, True), "page").to_pylist() == ["a", "3", "true"]
    assert field_values(json_column(1, 2**63 - 1, -5), "page").to_pylist() == [1.0, float(2**63), -5.0]
    assert field_values(json_column(10**400, 1), "page").to_pylist() == [float("inf"), 1.0]
    inside = pa.table({"meta": pa.array([{"x": 1}, None])}).append_column("page", json_column({"n": 7}, None)["page"])
    assert field_values(inside, "page.n").to_pylist() == [7, None]
