from pathlib import Path

from interleaved_assets.pipeline.files.inputs import find_shard_files
from interleaved_assets.pipeline.files.inspect import FileFacts, inspect_file
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import document, good_shard, sharp_image, write_shard


def inspected(path: Path, documents: int = 3) -> FileFacts:
    (file,) = find_shard_files([str(path)], Settings().storage)
    return inspect_file(file, Settings(), documents=documents)


def test_counts_formats_sizes_columns_and_documents(tmp_path: Path) -> None:
    small, large = sharp_image(1, 20, 10), sharp_image(2, 64, 48)
    path = write_shard(tmp_path / "a.tar", {"x": document("one", small, b"no image", url="u"), "y": document(large)})
    facts = inspected(path, documents=1)
    assert (facts.form, facts.size) == ("tar", path.stat().st_size)
    counts = facts.counts
    assert (counts.samples, counts.rows, counts.texts, counts.images) == (2, 6, 1, 3)
    assert counts.image_bytes == len(small) + len(large) + len(b"no image")
    assert {column.name: column.values for column in facts.columns}["url"] == 1
    png, unknown = facts.images
    assert (png.format, png.images, unknown.format, unknown.images) == ("image/png", 2, "unknown", 1)
    assert png.width is not None
    assert (png.width.low, png.width.median, png.width.high) == (20, 42, 64)
    assert unknown.width is None
    assert facts.errors == {}
    assert list(facts.documents) == ["x"]
    assert [item.content for item in facts.documents["x"]] == [
        "",
        "one",
        f"image/png 20 × 10, {len(small):,} bytes",
        "unknown, 8 bytes",
    ]


def test_a_cut_tar_is_counted_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = good_shard(tmp_path / "a.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    facts = inspected(tmp_path / "cut.tar")
    assert (facts.counts.samples, facts.counts.texts) == (3, 5)
    assert facts.errors == {"truncated_shard": 2}
