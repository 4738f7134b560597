"""What the image tokens of documents lead to: members, and frames of a TIFF."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from interleaved_assets.io.storage.ranges import BlockReader
from interleaved_assets.io.tar import reader as reader_module
from interleaved_assets.io.tar import tar_rows
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.samples import find_samples
from interleaved_assets.io.tiff.frames import tiff_frames
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.tars import (
    Content,
    encoded,
    errors,
    frames_document,
    picture,
    pixels,
    rows,
    tiff,
    write_tar,
)
from interleaved_assets_tests.system_calls import bytes_read


@pytest.mark.parametrize("options", [{}, {"compression": "jpeg", "quality": 80}], ids=["raw", "jpeg"])
def test_frames_are_cut_out_with_their_pixels(tmp_path: Path, options: dict[str, Any]) -> None:
    pictures = [picture(1, 40, 30), picture(2, 24, 48)]
    container = tiff(*pictures, **options)
    sizes = [{"width": 40, "height": 30}, {"width": 24, "height": 48}]
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("page_0_image_1", None, "page_3_image_85", image_metadata=sizes)),
        ("x.tiff", container),
    )
    images = [row for row in rows(uri) if row["modality"] == "image"]
    assert [row["content_type"] for row in images] == ["image/tiff"] * 2
    assert [row["image_metadata"] for row in images] == sizes
    expected = [pixels(tiff(one, **options)) for one in pictures]
    assert [pixels(row["binary_content"]) for row in images] == expected
    if not options:
        assert expected == [one.tobytes() for one in pictures]


def test_the_bytes_of_frames_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [picture(seed, 300, 200) for seed in range(8)]
    tokens = [f"page_0_image_{number}" for number in range(4)]
    members = [("a.json", frames_document(*tokens)), ("a.tiff", tiff(*images[:4]))]
    members += [("b.json", frames_document(*tokens)), ("b.tiff", tiff(*images[4:]))]
    uri = write_tar(tmp_path / "a.tar", *members)
    read = bytes_read(monkeypatch)
    table = next(read_tar_shard(uri, materialize=True))
    assert [pixels(data) for data in table["binary_content"].drop_null().to_pylist()] == [
        image.tobytes() for image in images
    ]
    # 1.4 MB of pixels; the first buffer of the file, blocks of 8 KiB around headers and directories in two passes
    most = 256 * 2**10 + 2 * 8192 * (4 + 2 * 5)
    assert 8 * 300 * 200 * 3 < sum(read) < 8 * 300 * 200 * 3 + most


@pytest.mark.parametrize("most_tags", [0, 40, 2**17])
def test_frames_whose_tags_are_not_kept_are_the_same(
    most_tags: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [picture(seed, 40 + seed, 30) for seed in range(6)]
    tokens = [f"page_0_image_{number}" for number in range(2)]
    members: list[tuple[str, Content]] = []
    for number in range(3):
        members.append((f"{number}.json", frames_document(*tokens)))
        members.append((f"{number}.tiff", tiff(*images[2 * number : 2 * number + 2], compression="jpeg")))
    uri = write_tar(tmp_path / "a.tar", *members)
    parsed = []
    stand_in(monkeypatch, reader_module, "KEPT_TAGS", most_tags)
    stand_in(monkeypatch, tar_rows, "tiff_frames", lambda tiff: parsed.append(tiff) or tiff_frames(tiff))
    found = [row["binary_content"] for row in rows(uri) if row["modality"] == "image"]
    assert [pixels(data) for data in found] == [pixels(tiff(image, compression="jpeg")) for image in images]
    # a TIFF of two frames has some 30 tags: of none, one or all of them they are kept
    assert len(parsed) == {0: 3, 40: 2, 2**17: 0}[most_tags]


@pytest.mark.parametrize(("with_bytes", "kept"), [(True, 2), (False, 0)])
def test_tars_of_a_partition_share_the_tags_that_are_kept(
    with_bytes: bool, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = tiff(picture(1, 40, 30), picture(2, 24, 48), compression="jpeg")
    tokens = [f"page_0_image_{number}" for number in range(2)]
    # each of four tars has two such TIFFs: half of the tags of all
    uris = [
        write_tar(
            tmp_path / f"{number}.tar",
            *[(f"{name}.json", frames_document(*tokens)) for name in "ab"],
            *[(f"{name}.tiff", container) for name in "ab"],
        )
        for number in range(4)
    ]
    with_tags = []

    def counted(*given: Any, **options: Any) -> Any:
        samples, notes = find_samples(*given, **options)
        with_tags.append(sum(ref.tiff is not None for sample in samples for ref in sample.images))
        return samples, notes

    stand_in(monkeypatch, reader_module, "find_samples", counted)
    stand_in(monkeypatch, reader_module, "KEPT_TAGS", 4 * 2 * len(tiff_frames(BlockReader(container))[0].entries))
    reader = InterleavedWebdatasetReader(uris, files_per_partition=4, materialize_on_read=with_bytes)
    assert sum(batch.to_pyarrow().num_rows for batch in reader) == 4 * 2 * 3
    assert with_tags == [kept] * 4


def test_frames_follow_the_tokens_that_are_no_members(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("page_9_image_1", "x.png", "page_0_image_2")),
        ("x.png", encoded(picture(5))),
        ("x.tiff", tiff(picture(1), picture(2))),
    )
    seen = [pixels(row["binary_content"]) for row in rows(uri)[1:]]
    assert seen == [picture(seed).tobytes() for seed in (1, 5, 2)]


def test_a_token_that_leads_nowhere_never_gets_another_image(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("missing.jpg", "page_0_image_1", "figure", "x.png")),
        ("x.tiff", tiff(picture(1), picture(2))),
        ("y.json", frames_document("page_0_image_1")),
        ("y.png", b"png"),
    )
    found = [(row["binary_content"] is None, row["materialize_error"]) for row in rows(uri) if row["position"] >= 0]
    assert found == [
        (True, "missing_member: missing.jpg is not in the tar"),
        (False, None),
        (True, "missing_member: figure is not in the tar"),
        (True, "missing_member: x.png is not in the tar"),
        (True, "missing_member: page_0_image_1 needs y.tiff, which is not in the tar"),
    ]


_DOUBT = "which has {}: a smaller copy of a frame, or a token that leads nowhere, comes before it"


def test_no_frame_is_certain_behind_a_token_that_may_mean_one(tmp_path: Path) -> None:
    def found(*tokens: Any, frames: int = 2) -> list[str | None]:
        container = ("x.tiff", tiff(*(picture(number) for number in range(frames))))
        return errors(write_tar(tmp_path / "a.tar", ("x.json", frames_document(*tokens)), container))[1:]

    doubt = f"frame_mismatch: frame 0 of x.tiff, {_DOUBT.format(2)}"
    assert found("figure", "page_1_image_0") == ["missing_member: figure is not in the tar", doubt]
    assert found(3, "page_1_image_0") == ["invalid_token: 3 is no name of a member or a frame", doubt]
    assert found("page_0_image_0", "figure")[0] is None
    for other in ("lost.png", " "):
        assert found(other, "page_1_image_0")[1] is None
    assert found("figure", "page_1_image_0", frames=1)[1] is None, "each frame has its token"


def test_a_token_that_comes_twice_means_one_frame_unless_there_are_frames_for_both(tmp_path: Path) -> None:
    def seen(*pictures: Image.Image) -> list[bytes]:
        document = frames_document("page_0_image_0", "page_0_image_0", "page_1_image_0")
        uri = write_tar(tmp_path / "a.tar", ("x.json", document), ("x.tiff", tiff(*pictures)))
        return [pixels(row["binary_content"]) for row in rows(uri)[1:4]]

    one, two, three = (picture(number) for number in range(3))
    assert seen(one, two) == [one.tobytes(), one.tobytes(), two.tobytes()]
    assert seen(one, two, three) == [one.tobytes(), two.tobytes(), three.tobytes()]
    document = frames_document("<image>", "<image>", pages="x.tiff")
    uri = write_tar(tmp_path / "a.tar", ("x.json", document), ("x.tiff", tiff(one, two, three)))
    found = rows(uri, layout=ShardLayout(image_member_field="pages"))[1:]
    assert [pixels(row["binary_content"]) for row in found] == [one.tobytes(), two.tobytes()]


def test_a_smaller_copy_of_a_frame_is_not_taken_for_the_next_image(tmp_path: Path) -> None:
    def found(*tokens: str) -> list[str | None]:
        return errors(write_tar(tmp_path / "a.tar", ("x.json", frames_document(*tokens)), ("x.tiff", container)))[1:]

    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as writer:
        for number in range(2):
            for kind, side in ((0, 32), (1, 8)):
                writer.write(np.asarray(picture(number, side, side)), photometric="rgb", subfiletype=kind)
    container = buffer.getvalue()
    tokens = [f"page_{number}_image_0" for number in range(4)]
    assert found(*tokens[:1]) == [None]
    doubt = [f"frame_mismatch: frame {number} of x.tiff, {_DOUBT.format(4)}" for number in (1, 2)]
    assert found(*tokens[:3]) == [None, *doubt]
    assert found(*tokens) == [None] * 4, "each frame has its token"


def test_a_field_may_name_the_container(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("d/x.json", frames_document("first", "second", "z.png", pages="scans/all.tif")),
        ("d/scans/all.tif", tiff(picture(1), picture(2))),
        ("e.json", frames_document("one", pages="none.tif")),
    )
    found = rows(uri, layout=ShardLayout(image_member_field="pages"))
    assert [pixels(row["binary_content"]) for row in found[1:3]] == [picture(1).tobytes(), picture(2).tobytes()]
    assert found[3]["materialize_error"] == "missing_member: z.png is not in the tar"
    assert found[0]["pages"] == "scans/all.tif"
    assert found[5]["materialize_error"] == "missing_member: one needs none.tif, which is not in the tar"


def test_too_few_frames_and_frames_of_another_size(tmp_path: Path) -> None:
    sizes = [{"width": 8, "height": 6}, {"width": 9, "height": 6}, {"width": 8, "height": 6}]
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("page_0_image_1", "page_0_image_2", "page_0_image_3", image_metadata=sizes)),
        ("x.tiff", tiff(picture(1), picture(2))),
    )
    assert errors(uri)[1:] == [
        None,
        "frame_mismatch: frame 1 of x.tiff is 8 × 6, image_metadata says 9 × 6",
        "frame_out_of_range: frame 2 of x.tiff, which has 2",
    ]
    assert pixels(rows(uri)[2]["binary_content"]) == picture(2).tobytes()
    assert errors(uri, materialize=False) == errors(uri)


def test_a_damaged_container_is_an_error_of_its_rows(tmp_path: Path) -> None:
    cut = tiff(picture(1, 64, 64), picture(2, 64, 64))
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("page_0_image_1")),
        ("x.tiff", b"not a TIFF"),
        ("y.json", frames_document("page_0_image_1", "page_0_image_2")),
        ("y.tiff", cut[: len(cut) - 5000]),
        ("z.json", {"texts": ["sound"], "images": [None]}),
    )
    codes = [error and error.partition(":")[0] for error in errors(uri)]
    assert codes[1] == "invalid_tiff"
    assert "invalid_tiff" in codes[3:5]
    assert codes[5:] == [None, None]
