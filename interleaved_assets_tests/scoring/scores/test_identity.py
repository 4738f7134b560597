"""Identities of documents, texts and images."""

import pyarrow as pa
import xxhash

from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.scoring.protocol.settings import DocumentSettings, ScoringSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets_tests.documents import sharp_image


def test_equal_words_have_equal_hashes() -> None:
    texts = {"a": ["One  two", "", "three\n"], "b": ["one two THREE"], "c": ["one", "twothree"], "d": [" \n", None]}
    rows = [(name, place, "text", text) for name, mine in texts.items() for place, text in enumerate(mine)]
    columns = list(zip(*rows, strict=True))
    types = (pa.string(), pa.int32(), pa.string(), pa.string())
    table = pa.table(
        [pa.array(column, dtype) for column, dtype in zip(columns, types, strict=True)],
        names=["sample_id", "position", "modality", "text_content"],
    )
    scores = score_documents(table, DocumentSettings(scorers=("identity",))).to_pylist()
    found = {(row["sample_id"], row["position"]): row["text_hash"] for row in scores}
    assert found["a", -1] == found["b", -1] == found["b", 0] == xxhash.xxh3_128_hexdigest(b"one two three")
    assert found["a", 0] == xxhash.xxh3_128_hexdigest(b"one two")
    assert found["c", -1] == xxhash.xxh3_128_hexdigest(b"one twothree")
    assert [found[key] for key in (("a", 1), ("d", -1), ("d", 0), ("d", 1))] == [None] * 4
    assert {row["url_hash"] for row in scores} == {None}  # the rows have no field url


def test_a_url_has_a_hash() -> None:
    table = pa.table(
        {
            "sample_id": ["a", "a", "b", "c"],
            "position": pa.array([-1, 0, -1, -1], pa.int32()),
            "modality": ["metadata", "text", "metadata", "metadata"],
            "text_content": [None, "one", None, None],
            "link": ["http://x.example/A", None, " http://x.example/A ", None],
        }
    )
    scores = score_documents(table, DocumentSettings(scorers=("identity",), url_field="link"))
    expected = xxhash.xxh3_128_hexdigest(b"http://x.example/A")
    assert scores["url_hash"].to_pylist() == [expected, None, expected, None]


def test_an_image_has_the_hash_of_its_bytes_even_if_it_cannot_be_decoded() -> None:
    images = [sharp_image(1), sharp_image(2), b"no image", sharp_image(1), None]
    table = pa.table(
        {
            "sample_id": ["a"] * 5,
            "position": pa.array(range(5), pa.int32()),
            "modality": ["image"] * 5,
            "binary_content": pa.array(images, pa.large_binary()),
        }
    )
    scores = score_images(table, ScoringSettings(scorers=("sharpness", "image_identity")))
    assert scores["image_hash"].to_pylist() == [
        None if image is None else xxhash.xxh3_128_hexdigest(image) for image in images
    ]
    assert scores["sharpness"].is_valid().to_pylist() == [True, True, False, True, False]
    assert scores["score_error"][2].as_py().startswith("undecodable_image")
