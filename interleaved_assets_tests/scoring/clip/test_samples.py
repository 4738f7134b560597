import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.scoring.clip.samples import ClipImage, ClipSample, ClipText, clip_schema, samples_of
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings


def table(*items: tuple[str, int, str, str | bytes | None, str | None]) -> pa.Table:
    return pa.table(
        {
            "sample_id": pa.array([item[0] for item in items], pa.string()),
            "position": pa.array([item[1] for item in items], pa.int32()),
            "modality": pa.array([item[2] for item in items], pa.string()),
            "text_content": pa.array([item[3] if item[2] == "text" else None for item in items], pa.string()),
            "binary_content": pa.array([item[3] if item[2] == "image" else None for item in items], pa.large_binary()),
            "materialize_error": pa.array([item[4] for item in items], pa.string()),
        }
    )


def test_samples_keep_the_order_of_their_rows_even_where_they_are_mixed() -> None:
    found = list(
        samples_of(
            table(
                ("b", -1, "metadata", None, None),
                ("b", 0, "text", " first \n", None),
                ("a", 0, "image", b"1", None),
                ("b", 1, "image", b"2", None),
                ("a", 1, "text", "second", None),
                ("b", 2, "text", "third", None),
                ("a", 2, "table", "cells", None),
            )
        )
    )
    assert [sample.sample_id for sample in found] == ["b", "a"]
    assert [sample.texts for sample in found] == [[(0, "first"), (2, "third")], [(1, "second")]]
    assert [[(image.position, bytes(image.data)) for image in sample.images] for sample in found] == [
        [(1, b"2")],
        [(0, b"1")],
    ]


def test_texts_of_white_space_and_nulls_do_not_count() -> None:
    (sample,) = samples_of(
        table(("a", 0, "text", " \n\t", None), ("a", 1, "text", None, None), ("a", 2, "image", b"1", None))
    )
    assert sample.texts == []


def test_samples_without_images_are_left_out() -> None:
    assert list(samples_of(table(("a", 0, "text", "only", None)))) == []
    assert list(samples_of(table())) == []


def test_a_row_without_bytes_says_why() -> None:
    (sample,) = samples_of(
        table(
            ("a", 0, "image", None, "missing_member: x.png"),
            ("a", 1, "image", None, None),
            ("a", 2, "image", b"", None),
        )
    )
    assert [(image.data, image.error) for image in sample.images] == [
        (b"", "missing_member: x.png"),
        (b"", "missing_source: the row has no bytes; materialize it first"),
        (b"", None),
    ]


def test_a_table_cut_into_chunks_and_slices_reads_the_same() -> None:
    whole = table(*[(f"s{number // 3}", number % 3, "image", bytes([number]), None) for number in range(9)])
    pieces = pa.concat_tables([whole.slice(start, 1) for start in range(9)])
    assert [[bytes(image.data) for image in sample.images] for sample in samples_of(pieces.slice(3))] == [
        [b"\x03", b"\x04", b"\x05"],
        [b"\x06", b"\x07", b"\x08"],
    ]


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


def known(key: bytes, vector: np.ndarray) -> ClipText:
    return ClipText(key, values=vector)


def scored(settings: ClipSettings, *samples: ClipSample) -> pa.Table:
    rows = [row for sample in samples for row in sample.scores(settings)]
    return pa.Table.from_pylist(rows, schema=clip_schema(settings, 2))


def test_the_best_text_counts_and_of_equal_ones_the_first() -> None:
    up, right = unit(0, 1), unit(1, 0)
    sample = ClipSample(
        "a",
        images=[ClipImage(1, values=unit(1, 3)), ClipImage(4, values=unit(-1, -3))],
        texts=[(0, "r"), (2, "u"), (3, "u")],
        pieces=[[known(b"r", right)], [known(b"u", up)], [known(b"u", up)]],
    )
    found = scored(ClipSettings(), sample)
    assert found["clip_score"].to_pylist() == pytest.approx([3 / 10**0.5, -1 / 10**0.5])
    assert found["clip_text_position"].to_pylist() == [2, 0]
    assert found["clip_error"].null_count == 2


def test_of_a_text_in_windows_the_best_window_counts() -> None:
    sample = ClipSample(
        "a",
        images=[ClipImage(1, values=unit(0, 1))],
        texts=[(0, "long"), (2, "short")],
        pieces=[
            [known(b"1", unit(1, 0)), known(b"2", unit(0, 1)), known(b"3", unit(-1, 0))],
            [known(b"4", unit(1, 1))],
        ],
    )
    found = scored(ClipSettings(), sample)
    assert (found["clip_score"][0].as_py(), found["clip_text_position"][0].as_py()) == (pytest.approx(1), 0)


def test_a_cosine_stays_within_its_bounds() -> None:
    vector = np.array([1.0000001, 0], np.float32)
    sample = ClipSample("a", [ClipImage(0, values=vector)], [(1, "x")], [[known(b"x", vector)]])
    assert scored(ClipSettings(), sample)["clip_score"].to_pylist() == [1.0]


def test_rows_come_in_the_order_of_the_samples_and_unscored_ones_say_why() -> None:
    settings = ClipSettings(heads={"total": HeadSettings(path="x")}, keep_embeddings=True)
    lonely = ClipSample("lonely", [ClipImage(0, values=np.append(unit(3, 4), np.float32(1.4)))])
    broken = ClipSample("broken", [ClipImage(7, error="undecodable_image: x")], [(8, "text")])
    found = scored(settings, lonely, broken)
    assert found.schema.names == [
        "sample_id",
        "position",
        "clip_score",
        "clip_text_position",
        "total",
        "embedding",
        "clip_error",
    ]
    assert found["sample_id"].to_pylist() == ["lonely", "broken"]
    assert found["clip_score"].to_pylist() == [None, None]
    assert found["total"].to_pylist() == [pytest.approx(1.4), None]
    assert found["embedding"].type == pa.list_(pa.float16(), 2)
    assert found["embedding"].to_pylist() == [pytest.approx([0.6, 0.8], abs=1e-3), None]
    assert found["clip_error"].to_pylist() == [
        "no_text: no text row of the sample has any characters but white space",
        "undecodable_image: x",
    ]


def test_a_shard_without_images_has_a_table_without_rows() -> None:
    settings = ClipSettings(keep_embeddings=True)
    assert scored(settings).schema == clip_schema(settings, 2)
    assert scored(settings).num_rows == 0
