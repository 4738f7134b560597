import pyarrow as pa
import pytest

from interleaved_assets.model.errors import NOT_IN_SOURCE
from interleaved_assets.pipeline.run.counts import RowCounter, UniqueKeys, count_errors
from interleaved_assets.pipeline.run.record import Counts


def rows(*keys: tuple[str, int, str]) -> pa.Table:
    ids, positions, modalities = zip(*keys, strict=True) if keys else ((), (), ())
    return pa.table(
        {
            "sample_id": pa.array(ids, pa.string()),
            "position": pa.array(positions, pa.int32()),
            "modality": pa.array(modalities, pa.string()),
        }
    )


A = [("a", -1, "metadata"), ("a", 0, "text"), ("a", 0, "image")]
B = [("b", -1, "metadata"), ("b", 0, "text")]


def test_counts_over_batches() -> None:
    tally = RowCounter()
    images = pa.array([b"1234", None, b"12"], pa.large_binary())
    tally.add(rows(*A).append_column("binary_content", images))
    tally.add(rows(*B).append_column("materialize_error", pa.array([None, "invalid_text: 3"])))
    assert tally.counts == Counts(rows=5, samples=2, images=1, texts=2, image_bytes=2)
    assert dict(tally.errors) == {"invalid_text": 1}


def test_what_is_not_in_the_source_is_no_error() -> None:
    absent = [f"{code}: https://a.example/" for code in NOT_IN_SOURCE]
    assert count_errors(pa.chunked_array([[*absent, None, "short_read: 1 of 2 bytes"]])) == {"short_read": 1}


@pytest.mark.parametrize(
    ("batches", "keys", "samples"),
    [
        ([], 0, 0),
        ([[]], 0, 0),
        ([A + B], 0, 0),  # a text and an image may share a position
        ([A, B], 0, 0),
        ([A + A], 3, 0),  # two samples of one id side by side show by their metadata rows
        ([A + B + A[1:]], 2, 1),
        ([[*B, ("b", 0, "text"), ("b", 0, "text")]], 2, 0),
        ([A, B, A], 0, 1),
        ([A + B, [("c", 0, "text"), *A, *B]], 0, 2),
        ([[("a", 0, "text")], [("a", 1, "text")]], 0, 1),  # a sample is whole in its batch: this is another one
    ],
)
def test_repeated_keys_and_ids_are_counted(batches: list[list[tuple[str, int, str]]], keys: int, samples: int) -> None:
    unique = UniqueKeys()
    for batch in batches:
        unique.add(rows(*batch))
    assert unique.counted == {"repeated_keys": keys, "repeated_samples": samples}
