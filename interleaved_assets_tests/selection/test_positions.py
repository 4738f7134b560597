import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets_tests.selection.tables import rows_of


def positions(rows):
    return reindex_positions(rows_of(rows))["position"].to_pylist()


def test_positions_have_no_gaps_and_metadata_stays():
    rows = [("a", -1, "metadata"), ("a", 2, "text"), ("a", 7, "image"), ("b", 4, "image"), ("b", -1, "metadata")]
    assert positions(rows) == [-1, 0, 1, 0, -1]


def test_order_of_rows_stays_and_positions_follow_the_old_ones():
    assert positions([("a", 9, "text"), ("b", 5, "text"), ("a", 3, "image")]) == [1, 0, 0]


def test_rows_that_share_a_position_share_the_new_one():
    assert positions([("a", 3, "text"), ("a", 3, "image"), ("a", 8, "text")]) == [0, 0, 1]


def test_other_columns_and_types_stay_and_an_empty_table_works():
    table = rows_of([("a", 3, "text")]).append_column("url", pa.array(["x"]))
    assert reindex_positions(table).schema == table.schema
    assert reindex_positions(table.slice(0, 0)).num_rows == 0
    assert reindex_positions(rows_of([("a", -1, "metadata")]))["position"].to_pylist() == [-1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.sampled_from(["text", "image"])), unique=True))
def test_new_positions_are_the_ranks_of_the_old(rows):
    expected = []
    for sample, position, _ in rows:
        lower = {other for name, other, _ in rows if name == sample and other < position}
        expected.append(len(lower))
    assert positions(rows) == expected
