"""The demo shards are the same each time, and each trait that a filter or a check needs is in them."""

import collections
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import zxingcpp
from PIL import Image, UnidentifiedImageError

from interleaved_assets.demo.documents import DemoMember, pack_tar
from interleaved_assets.demo.shards import SHARDS, write_demo_shards
from interleaved_assets.scoring.scores.sharpness import sharpness_256
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defects import keep_only

SHARPNESS_THRESHOLD = 100
TARS = sorted(name for name in SHARDS if name.endswith(".tar"))


Drawn = Callable[[str], Path]
"""The type of the fixture ``drawn``."""


def members(tar_file: Path) -> list[DemoMember]:
    with tarfile.open(tar_file) as tar:
        return [DemoMember(info.name, tar.extractfile(info).read()) for info in tar]


def documents(tar_file: Path) -> dict[str, dict[str, Any]]:
    """Parsed JSON by member name; one that does not parse is left out."""
    parsed = {}
    for member in members(tar_file):
        if member.name.endswith(".json"):
            try:
                parsed[member.name] = json.loads(member.data)
            except ValueError:
                continue
    return parsed


def sharpness(data: bytes) -> float:
    return float(cv2.Laplacian(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.CV_64F).var())


def noted_pictures(tar_file: Path) -> list[tuple[str, bytes]]:
    """Note and bytes of each picture of a shard that holds a file per picture."""
    files = {member.name: member.data for member in members(tar_file)}
    found = []
    for document in documents(tar_file).values():
        notes = dict(re.findall(r"at (\d+): ([^;]+)", document["demo_note"]))
        for position, token in enumerate(document["images"]):
            if token is not None and token in files:
                found.append((notes[str(position)], files[token]))
    return found


@pytest.mark.system
def test_the_same_bytes_each_time_and_only_files_that_differ_are_written(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("crawl-2/damaged.tar", "mint/pdf-000.tar", "web/articles-000.tar")  # between them every encoder
    keep_only(monkeypatch, SHARDS, *names)
    for name in names:
        (tmp_path / name).parent.mkdir()
        shutil.copy2(drawn(name), tmp_path / name)
    first, *others = (tmp_path / name for name in names)
    times = [path.stat().st_mtime_ns for path in others]
    first.write_bytes(b"changed")
    (tmp_path / "crawl-2/of-someone-else.tar").write_bytes(b"kept")
    assert write_demo_shards(tmp_path) == [first, *others]
    assert first.read_bytes() == drawn(names[0]).read_bytes()
    assert [path.stat().st_mtime_ns for path in others] == times
    assert (tmp_path / "crawl-2/of-someone-else.tar").read_bytes() == b"kept"
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.system
def test_shards_and_documents(tmp_path: Path) -> None:
    write_demo_shards(tmp_path)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert names == sorted(SHARDS)
    assert {name.split("/")[0] for name in names} == {"mint", "web", "crawl-2"}
    assert len(names) == 11
    for name in TARS:
        keys = [member.name for member in members(tmp_path / name) if member.name.endswith(".json")]
        assert len(keys) >= 12, name
    assert 15e6 < sum((tmp_path / name).stat().st_size for name in names) < 40e6


def test_headers_carry_no_time_and_no_owner(drawn: Drawn) -> None:
    with tarfile.open(drawn("mint/pdf-000.tar")) as tar:
        assert {(info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) for info in tar} == {
            (0, 0, 0, "", "", 0o644)
        }


@pytest.mark.system
def test_each_document_has_a_note_on_its_purpose(drawn: Drawn) -> None:
    for name in TARS:
        for key, document in documents(drawn(name)).items():
            assert document["demo_note"], f"{name} {key}"
            pictures = [position for position, token in enumerate(document["images"]) if token is not None]
            assert [int(at) for at in re.findall(r"at (\d+): ", document["demo_note"])] == pictures
            assert len(document["texts"]) == len(document["images"])
            assert all(
                (text is None) != (token is None)
                for text, token in zip(document["texts"], document["images"], strict=True)
            )


@pytest.mark.parametrize(
    ("name", "compression"), [("mint/pdf-000.tar", 1), pytest.param("mint/pdf-001.tar", 7, marks=pytest.mark.system)]
)
def test_pdf_shards_hold_frames_as_their_metadata_says(drawn: Drawn, name: str, compression: int) -> None:
    files = {member.name: member.data for member in members(drawn(name))}
    frames = 0
    for key, document in documents(drawn(name)).items():
        tokens = [token for token in document["images"] if token is not None]
        assert all(re.fullmatch(r"page_\d+_image_\d+", token) for token in tokens)
        image = Image.open(io.BytesIO(files[key.replace(".json", ".tiff")]))
        assert image.n_frames == len(tokens) == len(document["image_metadata"])
        for number, entry in enumerate(document["image_metadata"]):
            image.seek(number)
            assert image.tag_v2[259] == compression
            assert image.size == (entry["width"], entry["height"])
            assert tokens[number] == f"page_{entry['page']}_image_{entry['xref']}"
            assert len(entry["sha256"]) == 64
            frames += 1
    assert frames >= 25


@pytest.mark.system
def test_keys_differ_from_document_to_document(drawn: Drawn) -> None:
    for name in ("mint/pdf-000.tar", "mint/pdf-001.tar"):
        found = list(documents(drawn(name)).values())
        for key in (
            "language_id_whole_page_fasttext",
            "previous_word_count",
            "bff_contained_ngram_count_before_dedupe",
        ):
            assert 0 < sum(key in document for document in found) < len(found), (name, key)
        languages = {code for doc in found for code in doc.get("language_id_whole_page_fasttext", {})}
        assert len(languages) >= 3

    mixed = documents(drawn("crawl-2/mixed-keys.tar"))
    assert {type(doc["rating"]) for doc in mixed.values() if "rating" in doc} == {int, str, dict, type(None)}
    assert any(doc.get("crawl_id") == 2**70 for doc in mixed.values())
    assert any("nothing" in doc and doc["nothing"] is None for doc in mixed.values())
    assert any(doc.get("tags") == ["garden", "spring"] for doc in mixed.values())
    stems = collections.Counter(Path(key).stem for key in mixed)
    assert set(stems.values()) == {2}


@pytest.mark.system
def test_sharp_pictures_pass_the_blur_filter_and_blurred_ones_do_not(drawn: Drawn) -> None:
    pictures = noted_pictures(drawn("web/articles-000.tar")) + noted_pictures(drawn("web/galleries-000.tar"))
    blurred = [sharpness(data) for note, data in pictures if note.startswith("blurred")]
    sharp = [sharpness(data) for note, data in pictures if note.startswith("sharp")]
    assert len(blurred) >= 4
    assert len(sharp) >= 60
    assert max(blurred) < SHARPNESS_THRESHOLD <= min(sharp)


@pytest.mark.system
def test_the_shipped_bound_of_sharpness_at_256_pixels_keeps_every_sharp_picture(drawn: Drawn) -> None:
    bound = load_settings(Path(__file__).parents[2] / "interleaved.toml").selection.min_sharpness_256
    assert bound == 150
    pictures = [
        (note, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
        for name in ("web/articles-000.tar", "web/galleries-000.tar")
        for note, data in noted_pictures(drawn(name))
    ]
    for member in members(drawn("mint/pdf-001.tar")):
        if member.name.endswith(".tiff"):
            ok, frames = cv2.imdecodemulti(np.frombuffer(member.data, np.uint8), cv2.IMREAD_COLOR)
            assert ok
            pictures += [("sharp", frame) for frame in frames]
    assert min(sharpness_256(image) for note, image in pictures if note.startswith("sharp")) >= bound
    assert max(sharpness_256(image) for note, image in pictures if note.startswith("blurred")) < bound


@pytest.mark.system
def test_blurred_frames_are_among_the_uncompressed_ones_and_none_among_the_jpegs(drawn: Drawn) -> None:
    notes = [document["demo_note"] for document in documents(drawn("mint/pdf-000.tar")).values()]
    assert sum("blurred" in note for note in notes) == 4
    assert sum("grey" in note for note in notes) == 2
    files = [member for member in members(drawn("mint/pdf-001.tar")) if member.name.endswith(".tiff")]
    for member in files:
        ok, frames = cv2.imdecodemulti(np.frombuffer(member.data, np.uint8), cv2.IMREAD_COLOR)
        assert ok
        assert all(cv2.Laplacian(frame, cv2.CV_64F).var() >= SHARPNESS_THRESHOLD for frame in frames)


def test_qr_codes_cover_the_share_that_the_note_gives(drawn: Drawn) -> None:
    shares = []
    for note, data in noted_pictures(drawn("web/flyers-000.tar")):
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        codes = zxingcpp.read_barcodes(image)
        if "QR code" not in note:
            assert not codes
            continue
        [code] = codes
        place = code.position
        corners = [place.top_left, place.top_right, place.bottom_right, place.bottom_left]
        area = cv2.contourArea(np.array([(point.x, point.y) for point in corners], np.float32))
        share = float(re.search(r"on ([\d.]+)% of the area", note).group(1)) / 100
        assert area / (image.shape[0] * image.shape[1]) == pytest.approx(share, rel=0.03)
        assert code.text.startswith("HTTPS://EXAMPLE.ORG/")
        shares.append(share)
    assert len(shares) == 11
    assert min(shares) < 0.03
    assert max(shares) > 0.28
    assert sum(share < 0.05 for share in shares) >= 3


def test_shapes_and_file_formats(drawn: Drawn) -> None:
    sizes, formats = [], set()
    for _, data in noted_pictures(drawn("web/articles-000.tar")):
        image = Image.open(io.BytesIO(data))
        formats.add(image.format)
        sizes.append(image.size)
    assert formats == {"JPEG", "PNG", "WEBP"}
    aspects = [width / height for width, height in sizes]
    assert min(aspects) < 1 < max(aspects)
    assert sum(aspect > 2 for aspect in aspects) == 3


@pytest.mark.system
def test_galleries_range_from_nearly_all_pictures_to_only_text(drawn: Drawn) -> None:
    ratios = {}
    for document in documents(drawn("web/galleries-000.tar")).values():
        words = sum(len(text.split()) for text in document["texts"] if text is not None)
        images = sum(token is not None for token in document["images"])
        ratios[document["demo_note"].split(";")[0]] = images / max(words, 1)
    assert ratios["nearly all pictures"] >= 1
    assert ratios["pictures without a word"] == 6
    assert 0 < ratios["nearly all text"] < 0.01
    assert ratios["text without a picture"] == 0


def test_half_of_the_captions_belong_to_another_picture(drawn: Drawn) -> None:
    notes = []
    for document in documents(drawn("crawl-2/captions-000.tar")).values():
        for caption, note in zip(document["texts"][::2], document["demo_note"].split("; at "), strict=True):
            notes.append("swapped" in note)
            if "swapped" in note:
                assert not note.endswith(caption)
    assert notes.count(True) == notes.count(False) == 14


def test_damage(drawn: Drawn) -> None:
    name = "crawl-2/damaged.tar"
    everything = members(drawn(name))
    files = {member.name: member.data for member in everything}
    parsed = documents(drawn(name))
    named = {token for document in parsed.values() for token in document["images"] if token is not None}

    assert [token for token in named if not token.startswith("page_") and token not in files] == [
        "missing-picture.1.jpg"
    ]
    for undecodable in ("html-for-picture.0.jpg", "broken-header.1.png"):
        assert undecodable in named
        assert cv2.imdecode(np.frombuffer(files[undecodable], np.uint8), cv2.IMREAD_COLOR) is None
        with pytest.raises(UnidentifiedImageError):
            Image.open(io.BytesIO(files[undecodable]))
    with pytest.raises(json.JSONDecodeError):
        json.loads(files["cut-json.json"])
    assert [member.name for member in everything].count("repeated-key.json") == 2
    loose = {file for file in files if not file.endswith((".json", ".tiff"))}
    # the repeated JSON hides its predecessor's, and the cut one cannot say what it names
    loose = {file for file in loose if not file.startswith(("cut-json", "repeated-key"))}
    assert loose - named == {"unreferenced-file.thumbnail.jpg"}
    short = parsed["short-tiff.json"]
    assert sum(token is not None for token in short["images"]) == 2
    assert Image.open(io.BytesIO(files["short-tiff.tiff"])).n_frames == 1
    assert sum(key.startswith("sound-") for key in parsed) == 6


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        write_demo_shards(tmp_path / "file")


def test_pack_tar_reads_back(tmp_path: Path) -> None:
    given = [DemoMember("a/b.json", b"{}"), DemoMember("ü" * 90 + ".jpg", bytes(range(256)))]
    (tmp_path / "x.tar").write_bytes(pack_tar(given))
    assert members(tmp_path / "x.tar") == given
