"""Image files, and the captions and JSON beside them."""

import json
from pathlib import Path

import pyarrow as pa

from interleaved_assets.io.image_files.reader import read_image_file
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets_tests.documents import sharp_image


def read(path: Path, **options: object) -> list[dict[str, object]]:
    return pa.concat_tables(read_image_file(str(path), ReadOptions(materialize=True, **options))).to_pylist()


def test_an_image_alone_and_one_with_caption_and_json(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(sharp_image(1))
    assert [(row["sample_id"], row["modality"]) for row in read(path)] == [("cat", "metadata"), ("cat", "image")]
    (tmp_path / "cat.txt").write_text("A cat.", encoding="utf-8")
    (tmp_path / "cat.json").write_text(json.dumps({"url": "https://a.example/"}), encoding="utf-8")
    document, image, caption = read(path)
    assert document["url"] == "https://a.example/"
    assert image["binary_content"] == sharp_image(1)
    assert (caption["modality"], caption["text_content"]) == ("text", "A cat.")


def test_a_caption_of_another_encoding_is_an_error_and_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(sharp_image(1))
    for text in ("Ein Kätzchen", "A cat", "Кот", "Кот на диване"):
        for codec in ("utf-16", "utf-16-be", "utf-16-le", "latin-1", "cp1251", "utf-32"):
            encoded = text.encode(codec, "replace")
            if not encoded.isascii() or 0 in encoded:
                (tmp_path / "cat.txt").write_bytes(encoded)
                assert str(read(path)[2]["materialize_error"]).startswith("invalid_text: "), (text, codec)
    for text in ("a\0b", "a cat\0\0\0", "\33[1mbold", "", "1\x0b2\n"):
        (tmp_path / "cat.txt").write_bytes(text.encode())
        assert (read(path)[2]["text_content"], read(path)[2]["materialize_error"]) == (text, None)
    (tmp_path / "cat.txt").write_bytes("Ein Kätzchen".encode("utf-8-sig"))
    assert (read(path)[2]["text_content"], read(path)[2]["materialize_error"]) == ("Ein Kätzchen", None)


def test_a_caption_over_the_limit_is_an_error_and_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(sharp_image(1))
    limits = TarLimits(max_document_bytes=100)
    (tmp_path / "cat.txt").write_text("x" * 100, encoding="utf-8")
    assert read(path, limits=limits)[2]["text_content"] == "x" * 100
    (tmp_path / "cat.txt").write_text("x" * 101, encoding="utf-8")
    caption = read(path, limits=limits)[2]
    assert caption["text_content"] is None
    assert str(caption["materialize_error"]).startswith("document_too_large: ")
    assert "cat.txt" in str(caption["materialize_error"])
