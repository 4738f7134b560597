import hashlib
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleaved_assets.scoring.clip.cache import EmbeddingCache, image_key, text_key
from interleaved_assets_tests.s3 import S3Server

WIDTH = 3


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=WIDTH).astype(np.float32)


def cache_in(folder: str) -> EmbeddingCache:
    return EmbeddingCache(folder, "f" * 32, WIDTH)


def test_keys_tell_images_from_texts_and_each_from_another() -> None:
    keys = {image_key(b"1"), image_key(b"2"), text_key(np.array([1], np.int32)), text_key(np.array([1, 2], np.int32))}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {16}
    assert image_key(memoryview(b"1")) == image_key(b"1") == hashlib.sha256(b"image:1").digest()[:16]


@pytest.mark.parametrize("place", ["{tmp}/cache", "file://{tmp}/cache", "memory://clip-cache-{name}"])
def test_an_embedding_comes_back_bit_for_bit_in_a_later_run(place: str, tmp_path: Path) -> None:
    folder = place.format(tmp=tmp_path, name=tmp_path.name)
    first = cache_in(folder)
    assert first.get(image_key(b"a")) is None
    for number, name in enumerate((b"a", b"b")):
        first.put(image_key(name), vector(number))
    first.flush()
    first.put(image_key(b"c"), vector(2))
    first.flush()
    first.flush()
    second = cache_in(folder)
    assert len(second) == 3
    for number, name in enumerate((b"a", b"b", b"c")):
        found = second.get(image_key(name))
        assert found is not None
        assert found.dtype == np.float32
        assert np.array_equal(found, vector(number))
    assert second.get(image_key(b"d")) is None


def test_workers_that_share_only_a_bucket_share_the_cache(s3_server: S3Server, bucket: str) -> None:
    def cache() -> EmbeddingCache:
        return EmbeddingCache(f"{bucket}/cache", "f" * 32, WIDTH, s3_server.storage_options)

    one, other = cache(), cache()
    for number, writer in enumerate((one, other)):
        writer.put(image_key(bytes([number])), vector(number))
        writer.flush()
    reader = cache()
    assert len(reader) == 2
    assert np.array_equal(reader.get(image_key(b"\0")), vector(0))  # type: ignore[arg-type]  # None would fail
    assert np.array_equal(reader.get(image_key(b"\1")), vector(1))  # type: ignore[arg-type]  # None would fail


@settings(max_examples=30)
@given(st.lists(st.lists(st.binary(min_size=16, max_size=16), max_size=8, unique=True), max_size=4))
def test_whatever_the_keys_each_gives_its_own_embedding(segments: list[list[bytes]]) -> None:
    fsspec.filesystem("memory").store.clear()
    writer = cache_in("memory://clip-cache-keys")
    known = {}
    for keys in segments:
        for key in keys:
            known.setdefault(key, len(known))
            writer.put(key, vector(known[key]))
        writer.flush()
    reader = cache_in("memory://clip-cache-keys")
    for key, seed in known.items():
        assert np.array_equal(reader.get(key), vector(seed))  # type: ignore[arg-type]  # None would fail


def test_two_writers_of_the_same_content_write_one_segment(tmp_path: Path) -> None:
    for _ in range(2):
        writer = cache_in(str(tmp_path))
        writer.put(image_key(b"a"), vector(0))
        writer.flush()
    assert len(list(tmp_path.rglob("*.keys"))) == len(list(tmp_path.rglob("*.rows"))) == 1


def test_another_model_finds_nothing(tmp_path: Path) -> None:
    writer = cache_in(str(tmp_path))
    writer.put(image_key(b"a"), vector(0))
    writer.flush()
    assert len(EmbeddingCache(str(tmp_path), "e" * 32, WIDTH)) == 0


@pytest.mark.parametrize("damage", ["short", "gone"])
def test_a_damaged_segment_is_passed_over_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = cache_in(str(tmp_path))
    writer.put(image_key(b"a"), vector(0))
    writer.flush()
    (rows,) = tmp_path.rglob("*.rows")
    rows.unlink() if damage == "gone" else rows.write_bytes(b"123")
    assert cache_in(str(tmp_path)).get(image_key(b"a")) is None
    assert rows.name in caplog.text


def test_a_foreign_or_empty_key_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ("f" * 32)).mkdir()
    (tmp_path / ("f" * 32) / "odd.keys").write_bytes(b"123")
    (tmp_path / ("f" * 32) / "none.keys").write_bytes(b"")
    assert len(cache_in(str(tmp_path))) == 0


def test_where_the_cache_cannot_be_written_scoring_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = cache_in(str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("in the way")
    writer.put(image_key(b"a"), vector(0))
    writer.flush()
    assert "embeddings were not kept in the cache" in caplog.text


def test_more_segments_than_stay_in_memory(tmp_path: Path) -> None:
    writer = cache_in(str(tmp_path))
    for number in range(20):
        writer.put(image_key(bytes([number])), vector(number))
        writer.flush()
    reader = cache_in(str(tmp_path))
    for number in [*range(20), *range(20)]:
        assert np.array_equal(reader.get(image_key(bytes([number]))), vector(number))  # type: ignore[arg-type]  # as above
