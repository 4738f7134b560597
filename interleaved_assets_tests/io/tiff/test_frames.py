"""Frames extracted from TIFFs have the same pixels and tags in Pillow and tifffile; damaged TIFFs."""

import io
import re
import struct
import tracemalloc

import numpy as np
import pytest
import tifffile
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from interleaved_assets.io.storage.ranges import BlockReader
from interleaved_assets.io.tiff.frames import TiffFrame, frame_pieces, tiff_frames
from interleaved_assets_tests.io.tiff.cut import cut_frame, in_a_file
from interleaved_assets_tests.system_calls import bytes_read

# tags that say where strips and tiles lie and how long they are
PLACES = (273, 279, 324, 325)
SIZES = [(37, 29), (64, 48), (5, 3), (130, 17)]


def pixels(mode: str, width: int, height: int, seed: int) -> Image.Image:
    """Smooth with some noise, so that JPEG keeps it and LZW has something to do."""
    rng = np.random.default_rng(seed)
    ramp = np.add.outer(np.arange(height), np.arange(width)) * 3 % 200
    if mode == "I;16":
        return Image.fromarray((ramp * 300 + rng.integers(0, 300, ramp.shape)).astype(np.uint16))
    if mode == "F":
        return Image.fromarray((ramp / 7).astype(np.float32))
    bands = len(Image.new("RGB" if mode in ("1", "P") else mode, (1, 1)).getbands())
    image = np.stack([ramp + 20 * band + rng.integers(0, 8, ramp.shape) for band in range(bands)], axis=2)
    array = image.astype(np.uint8)
    if mode in ("1", "P"):
        picture = Image.fromarray(array)
        return picture.convert("1") if mode == "1" else picture.quantize(64)
    return Image.fromarray(array[:, :, 0] if mode == "L" else array, mode)


def saved(mode: str, compression: str | None, **options: object) -> bytes:
    frames = [pixels(mode, *size, seed=number) for number, size in enumerate(SIZES)]
    file = io.BytesIO()
    frames[0].save(file, "TIFF", save_all=True, append_images=frames[1:], compression=compression, **options)
    return file.getvalue()


def tags(image: Image.Image) -> dict[int, object]:
    """All tags but the places and lengths of strips and tiles."""
    return {tag: value for tag, value in image.tag_v2.items() if tag not in PLACES}


def assert_same_frames(data: bytes) -> int:
    """Every frame of ``data``, cut out, is to Pillow what it was in its place; gives the number of frames."""
    source = Image.open(io.BytesIO(data))
    frames = tiff_frames(BlockReader(data))
    assert len(frames) == source.n_frames
    for number, frame in enumerate(frames):
        source.seek(number)
        cut = Image.open(io.BytesIO(cut_frame(data, number)))
        assert cut.n_frames == 1
        assert (frame.width, frame.height, frame.error) == (*source.size, None)
        assert (cut.size, cut.mode) == (source.size, source.mode)
        assert tags(cut) == tags(source)
        assert cut.tobytes() == source.tobytes()
        assert cut.getpalette() == source.getpalette()
    assert_same_in_a_file(data, frames, [cut_frame(data, number) for number in range(len(frames))])
    return len(frames)


@pytest.mark.parametrize(
    ("mode", "compression"),
    [
        *[(mode, None) for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "LA")],
        *[(mode, "tiff_lzw") for mode in ("1", "L", "P", "RGB", "RGBA", "I;16")],
        *[(mode, "tiff_adobe_deflate") for mode in ("L", "RGB", "I;16", "F")],
        *[(mode, "jpeg") for mode in ("L", "RGB", "CMYK")],
        ("1", "group4"),
        ("RGB", "packbits"),
        ("RGB", "zstd"),
    ],
)
def test_pillow_reads_cut_frames_like_the_original(mode: str, compression: str | None) -> None:
    data = saved(mode, compression, dpi=(72.5, 96), description="a frame with out-of-line text")
    assert assert_same_frames(data) == len(SIZES)


def test_jpeg_tables_and_icc_profile_are_kept() -> None:
    # shared tables only where libtiff writes several strips
    data = saved("RGB", "jpeg", tiffinfo={278: 16}, icc_profile=b"profile" * 99)
    assert_same_frames(data)
    cut = Image.open(io.BytesIO(cut_frame(data, 1)))
    assert cut.tag_v2[347].startswith(b"\xff\xd8")
    assert len(cut.tag_v2[273]) == 3
    assert cut.info["icc_profile"] == b"profile" * 99


def test_exif_and_gps_directories_are_kept() -> None:
    exif = Image.Exif()
    for directory, tag, value in ((0x8769, 0x9003, "2020:02:03 04:05:06"), (0x8825, 1, "N")):
        exif.get_ifd(directory)[tag] = value
        exif[directory] = exif.get_ifd(directory)  # Pillow writes it only where both are set
    data = saved("RGB", None, exif=exif)
    source = Image.open(io.BytesIO(data))
    cut = Image.open(io.BytesIO(cut_frame(data, 0)))
    assert dict(cut.getexif().get_ifd(0x8769)) == dict(source.getexif().get_ifd(0x8769)) != {}
    assert dict(cut.getexif().get_ifd(0x8825)) == dict(source.getexif().get_ifd(0x8825)) != {}
    assert cut.tobytes() == source.tobytes()


@pytest.mark.parametrize("big", [False, True], ids=["classic", "big"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big-endian"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tile": (16, 16)},
        {"rowsperstrip": 5},
        {"planarconfig": "separate", "photometric": "rgb"},
        {"planarconfig": "separate", "photometric": "rgb", "tile": (16, 32)},
        {"subifds": 1},
        {"extratags": [(65000, "s", 0, "a private tag" * 9, True), (65001, "d", 3, (1.5, 2.5, 3.5), True)]},
    ],
    ids=["strip", "tiles", "strips", "planes", "planes in tiles", "subifds", "private tags"],
)
def test_tifffile_reads_cut_frames_like_the_original(order: str, big: bool, options: dict) -> None:
    rng = np.random.default_rng(3)
    separate = options.get("planarconfig") == "separate"
    arrays = [
        rng.integers(0, 2**16, (3, h, w) if separate else (h, w, 3)).astype(np.uint16) for w, h in ((40, 33), (17, 50))
    ]
    options = {"photometric": "rgb", **options}
    file = io.BytesIO()
    with tifffile.TiffWriter(file, bigtiff=big, byteorder=order) as writer:
        for array in arrays:
            writer.write(array, metadata=None, **options)
            for _ in range(options.get("subifds", 0)):
                writer.write(array[::2, ::2], photometric="rgb", metadata=None)
    data = file.getvalue()
    frames = tiff_frames(BlockReader(data))
    assert_same_in_a_file(data, frames, [cut_frame(data, number) for number in range(len(arrays))])
    for number, array in enumerate(arrays):
        with (
            tifffile.TiffFile(io.BytesIO(data)) as before,
            tifffile.TiffFile(io.BytesIO(cut_frame(data, number))) as cut,
        ):
            assert (cut.byteorder, cut.is_bigtiff, len(cut.pages)) == (order, big, 1)
            assert np.array_equal(cut.pages[0].asarray(), array)
            kept = {
                tag.code: tag.value for tag in before.pages[number].tags if tag.code not in (273, 279, 324, 325, 330)
            }
            found = {tag.code: tag.value for tag in cut.pages[0].tags if tag.code not in (273, 279, 324, 325)}
            assert found == kept


def test_pixel_data_is_not_copied() -> None:
    data = saved("RGB", None)
    head, *strips = frame_pieces(BlockReader(data), tiff_frames(BlockReader(data))[1])
    assert isinstance(head, bytes)
    assert all(isinstance(strip, memoryview) and strip.obj is data for strip in strips)
    # strips that lie side by side are one piece
    assert len(strips) == 1
    assert len(strips[0]) == 64 * 48 * 3


def test_frames_of_a_file_are_found_without_reading_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    read = bytes_read(monkeypatch)
    images = [pixels("RGB", 500, 400, seed) for seed in range(4)]
    file = io.BytesIO()
    images[0].save(file, "TIFF", save_all=True, append_images=images[1:])
    with in_a_file(file.getvalue()) as data:
        tiff = BlockReader(data)
        frames = tiff_frames(tiff)
        pieces = [frame_pieces(tiff, found) for found in frames]
        # a block of 8 KiB for the header and each directory, of 600 KB of pixels each
        assert (len(frames), len(read) <= 5, sum(read) <= 5 * 8192) == (4, True, True)
        assert sum(len(bytes(piece)) for parts in pieces for piece in parts[1:]) == 4 * 500 * 400 * 3


def test_the_only_frame_is_the_file_itself() -> None:
    file = io.BytesIO()
    pixels("RGB", 30, 20, 0).save(file, "TIFF")
    data = file.getvalue() + b"trailing"
    (piece,) = frame_pieces(BlockReader(data), tiff_frames(BlockReader(data))[0])
    assert piece.obj is data
    assert bytes(piece) == data


def test_a_cut_frame_cut_again_is_the_same() -> None:
    cut = cut_frame(saved("RGB", "jpeg"), 2)
    assert cut_frame(cut, 0) == cut


# ---------------------------------------------------------------- TIFFs made by hand


def tiff(*directories: list[tuple[int, int, int, int]], body: bytes = b"", links: list[int] | None = None) -> bytes:
    """A little-endian TIFF: ``body`` at byte 8, then directories of (tag, type, count, value), in order."""
    starts = []
    at = 8 + len(body)
    for entries in directories:
        starts.append(at)
        at += 2 + 12 * len(entries) + 4
    links = links or [*starts[1:], 0]
    parts = [struct.pack("<2sHI", b"II", 42, starts[0] if starts else 0), body]
    for entries, link in zip(directories, links, strict=True):
        parts.append(struct.pack("<H", len(entries)))
        parts += [struct.pack("<HHII", *entry) for entry in entries]
        parts.append(struct.pack("<I", link))
    return b"".join(parts)


SHORT, LONG = 3, 4


def frame(at: int = 8, size: int | None = 12, compression: int = 1) -> list[tuple[int, int, int, int]]:
    """A grey frame of 4 × 3 pixels in one strip."""
    entries = [(256, SHORT, 1, 4), (257, SHORT, 1, 3), (258, SHORT, 1, 8), (259, SHORT, 1, compression)]
    entries += [(262, SHORT, 1, 1), (273, LONG, 1, at), (278, LONG, 1, 3)]
    return entries + ([] if size is None else [(279, SHORT, 1, size)])


BODY = bytes(range(100, 124))


@pytest.mark.parametrize("compression", [1, 5])
def test_strip_lengths_must_be_stated(compression: int) -> None:
    data = tiff(frame(size=None, compression=compression), frame(), body=BODY)
    with pytest.raises(ValueError, match="does not say how long its strips or tiles are"):
        cut_frame(data, 0)
    assert Image.open(io.BytesIO(cut_frame(data, 1))).tobytes() == BODY[:12]


@pytest.mark.parametrize("stated", [0, 1, 11])
def test_strips_of_raw_pixels_that_are_stated_too_short_are_refused(stated: int) -> None:
    # libtiff reads them in full, so that cutting out what is stated would lose pixels
    data = tiff(frame(at=20, size=stated), frame(), body=BODY)
    assert Image.open(io.BytesIO(data)).tobytes() == BODY[12:]
    with pytest.raises(ValueError, match=f"state {stated} bytes, and its pixels take 12"):
        cut_frame(data, 0)
    assert Image.open(io.BytesIO(cut_frame(data, 1))).tobytes() == BODY[:12]


def strips(*counts: int, at: tuple[int, ...] = (8, 16, 24)) -> bytes:
    """A grey frame of 4 × 6 pixels in three strips of 2 rows, before another frame."""
    body = bytes(range(24)) + struct.pack("<6I", *at, *counts)
    entries = [(256, SHORT, 1, 4), (257, SHORT, 1, 6), (258, SHORT, 1, 8), (259, SHORT, 1, 1), (262, SHORT, 1, 1)]
    entries += [(273, LONG, 3, 32), (278, LONG, 1, 2), (279, LONG, 3, 44)]
    return tiff(entries, frame(), body=body)


@pytest.mark.parametrize(("counts", "short"), [((4, 12, 8), 0), ((12, 4, 8), 1), ((8, 10, 6), 2)])
def test_a_strip_of_raw_pixels_too_short_beside_one_too_long_is_refused(counts: tuple[int, ...], short: int) -> None:
    # libtiff and Pillow read strips of the usual length from each offset, whatever is stated
    data = strips(*counts)
    assert Image.open(io.BytesIO(data)).tobytes() == bytes(range(24))
    with pytest.raises(ValueError, match=f"strip or tile {short} of the TIFF frame states {counts[short]} bytes, .* 8"):
        cut_frame(data, 0)
    assert Image.open(io.BytesIO(cut_frame(data, 1))).tobytes() == bytes(range(12))


def test_strips_of_raw_pixels_may_be_longer_than_their_pixels() -> None:
    cut = cut_frame(strips(8, 8, 16, at=(16, 8, 16)), 0)
    assert Image.open(io.BytesIO(cut)).tobytes() == bytes([*range(8, 16), *range(8), *range(8, 16)])


def test_a_raw_tile_too_short_beside_one_too_long_is_refused() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for _ in range(2):
            writer.write(np.arange(32 * 32, dtype=np.uint8).reshape(32, 32), tile=(16, 16), photometric="minisblack")
    data = bytearray(file.getvalue())
    assert_same_frames(bytes(data))
    at = tifffile.TiffFile(io.BytesIO(data)).pages[0].tags[325].valueoffset
    data[at : at + 8] = struct.pack("<4H", 256, 255, 257, 256)
    with pytest.raises(ValueError, match="strip or tile 1 of the TIFF frame states 255 bytes, and its pixels take 256"):
        cut_frame(bytes(data), 0)


def test_strips_that_were_never_written() -> None:
    unwritten = tiff(frame(at=0, size=0), frame(), body=BODY)
    (page,) = tifffile.TiffFile(io.BytesIO(cut_frame(unwritten, 0))).pages
    assert (page.dataoffsets, page.databytecounts) == ((0,), (0,))


def test_strips_of_planes() -> None:
    # 3 planes of 4 × 3 pixels in strips of 2 rows: 8 and 4 bytes for each plane
    counts = (8, 4) * 3
    body = bytes(range(36)) + struct.pack("<6I", 8, 16, 20, 28, 32, 40) + struct.pack("<6I", *counts)
    entries = [(256, SHORT, 1, 4), (257, SHORT, 1, 3), (258, SHORT, 1, 8), (259, SHORT, 1, 1), (262, SHORT, 1, 2)]
    entries += [(273, LONG, 6, 44), (277, SHORT, 1, 3), (278, SHORT, 1, 2), (279, LONG, 6, 68), (284, SHORT, 1, 2)]
    cut = tifffile.TiffFile(io.BytesIO(cut_frame(tiff(entries, frame(), body=body), 0))).pages[0]
    assert cut.databytecounts == counts
    assert cut.asarray().tobytes() == bytes(range(36))
    wrong = [(273, LONG, 5, 44) if entry[0] == 273 else entry for entry in entries]
    with pytest.raises(ValueError, match="has 5 strips or tiles, but 6 lengths"):
        cut_frame(tiff(wrong, frame(), body=body), 0)


def test_strips_of_a_picture_without_samples_take_no_memory() -> None:
    # 4,194,304 rows in no plane; with the largest height lengths for them would take 32 GiB
    tags = [(256, SHORT, 1, 0), (257, LONG, 1, 2**22), (273, LONG, 0, 0), (277, SHORT, 1, 0)]
    tags += [(278, LONG, 1, 1), (279, LONG, 0, 0), (284, SHORT, 1, 2)]
    data = tiff(tags, frame(), body=BODY)
    tracemalloc.start()
    assert len(cut_frame(data, 0)) == 8 + 2 + 12 * 7 + 4
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


def test_old_style_jpeg_is_refused() -> None:
    with pytest.raises(ValueError, match="old-style JPEG \\(compression 6\\), which cannot be cut out"):
        cut_frame(tiff(frame(compression=6), frame(), body=BODY), 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (frame(at=1000), "a strip or tile of the TIFF frame reaches beyond the end"),
        (frame(size=5000), "a strip or tile of the TIFF frame reaches beyond the end"),
        ([(273, LONG, 1, 8), (279, LONG, 1, 4)], "the TIFF frame lacks tag 256"),
        ([(256, LONG, 1, 4), (257, 2, 1, 3)], "tag 257 of the TIFF has type 2, which is no unsigned integer"),
        ([(256, LONG, 1, 4), (257, LONG, 1, 3)], "has neither strips nor tiles"),
        ([*frame()[:5], (273, LONG, 3, 8), (279, LONG, 1, 12)], "has 3 strips or tiles, but 1 lengths"),
        ([*frame(), (305, 2, 4000, 60)], "the value of tag 305 in the directory at byte .* reaches beyond the end"),
    ],
)
def test_a_damaged_frame_leaves_the_others_their_numbers(broken: list, message: str) -> None:
    data = tiff(frame(), broken, frame(at=20), body=BODY)
    assert len(tiff_frames(BlockReader(data))) == 3
    with pytest.raises(ValueError, match=message):
        cut_frame(data, 1)
    assert Image.open(io.BytesIO(cut_frame(data, 0))).tobytes() == BODY[:12]
    assert Image.open(io.BytesIO(cut_frame(data, 2))).tobytes() == BODY[12:]


def test_strips_that_overlap_are_refused_before_they_are_copied() -> None:
    # 500 strips of 2 KB each over the same 4 KB: 1 MB out of 8 KB
    offsets, counts = struct.pack("<500I", *[8] * 500), struct.pack("<500I", *[2000] * 500)
    entries = [*frame()[:5], (273, LONG, 500, 8), (279, LONG, 500, 2008)]
    data = tiff(entries, frame(), body=offsets + counts)
    with pytest.raises(ValueError, match="strips or tiles of the TIFF frame overlap"):
        cut_frame(data, 0)


@pytest.mark.parametrize("back_to", [0, 1])
def test_a_chain_in_a_circle_ends(back_to: int) -> None:
    plain = tiff(frame(), frame(at=20), body=BODY)
    starts = [32, 32 + 2 + 12 * 8 + 4]
    data = tiff(frame(), frame(at=20), body=BODY, links=[starts[1], starts[back_to]])
    assert len(data) == len(plain)
    frames = tiff_frames(BlockReader(data))
    assert [found.error for found in frames] == [None, None, "directory 2 of the TIFF leads back to an earlier one"]


def test_a_truncated_file_keeps_its_whole_frames() -> None:
    data = saved("RGB", None)
    frames = tiff_frames(BlockReader(data[: len(data) // 2]))
    assert frames[0].error is None
    assert "beyond the end" in str(frames[-1].error)
    assert cut_frame(data[: len(data) // 2], 0) == cut_frame(data, 0)


def test_directories_that_overlap_end_the_walk() -> None:
    # 200 directories of 70 entries, 4 bytes apart: far more to walk through than there are bytes
    count, entries = 200, 70
    data = bytearray(102 + 12 * entries + 4 * count)
    struct.pack_into("<2sHI", data, 0, b"II", 42, 100)
    for number in range(count):
        at = 100 + 4 * number
        struct.pack_into("<H", data, at, entries)
        struct.pack_into("<I", data, at + 2 + 12 * entries, at + 4)
    frames = tiff_frames(BlockReader(data))
    assert len(frames) < 5
    assert frames[-1].error == f"directory {len(frames) - 1} of the TIFF overlaps with others"


class CountingReader(BlockReader):
    """Counts the bytes that are asked for."""

    asked = 0

    def read(self, at: int, size: int) -> bytes:
        self.asked += size
        return super().read(at, size)


def test_strip_lengths_that_many_frames_share_are_read_once() -> None:
    # 300 frames with the same 3000 lengths: a file of a few MB would take minutes
    tags = [*frame(size=None), (279, LONG, 3000, 8)]
    data = tiff(*[tags] * 300, body=bytes(4 * 3000))
    reader = CountingReader(data)
    found = tiff_frames(reader)
    assert reader.asked < 3 * len(data)
    assert [(one.width, one.height, one.error) for one in found] == [(4, 3, None)] * 300
    assert all(one.size <= found[0].size + len(data) for one in found)


def test_lengths_of_a_damaged_frame_do_not_count_as_read() -> None:
    data = tiff([*frame(size=None), (279, LONG, 2**20, 8)], frame(), frame(), body=BODY)
    found = tiff_frames(BlockReader(data))
    assert [one.error is None for one in found] == [False, True, True]
    assert found[1].size < len(data)


def test_values_that_overlap_are_refused_before_they_are_copied() -> None:
    tags = [(number, 7, 60, 8) for number in range(60000, 60020)]
    with pytest.raises(ValueError, match="values of the TIFF frame's tags overlap"):
        cut_frame(tiff([*frame(), *tags], frame(), body=bytes(60)), 0)


def test_offsets_beyond_63_bits_are_refused() -> None:
    entries = [(273, 16, 1, 8) if entry[0] == 273 else entry for entry in frame()]
    with pytest.raises(ValueError, match="tag 273 of the TIFF has a value beyond 63 bits"):
        cut_frame(tiff(entries, frame(), body=b"\xff" * 24), 0)


@pytest.mark.parametrize("pointer", [34665, 34853])
@pytest.mark.parametrize("leads_to", ["beyond the end", "itself"])
def test_a_damaged_exif_directory_keeps_its_frame(pointer: int, leads_to: str) -> None:
    # the second directory begins behind the header, the body and the first one
    at = 32 + 2 + 12 * 9 + 4 if leads_to == "itself" else 10**6
    data = tiff(frame(), [*frame(at=20), (pointer, LONG, 1, at)], body=BODY)
    cut = cut_frame(data, 1)
    assert Image.open(io.BytesIO(cut)).tobytes() == BODY[12:]
    assert len(cut) < 1000


@pytest.mark.parametrize(
    "data", [b"", b"II", b"II*\0", b"II*\0\0\0\0", b"GIF89a..........", b"II+\0\x04\0\0\0" + b"\0" * 9]
)
def test_bytes_that_are_not_a_tiff_raise(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a TIFF"):
        tiff_frames(BlockReader(data))


def test_a_tiff_without_a_directory_has_no_frame() -> None:
    with pytest.raises(ValueError, match="the TIFF has no frame"):
        tiff_frames(BlockReader(b"II*\0\0\0\0\0"))


SOURCES = [saved("RGB", "jpeg"), saved("RGB", None), saved("P", "tiff_lzw"), tiff(frame(), frame(at=20), body=BODY)]


@given(st.sampled_from(SOURCES), st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), max_size=6))
@example(SOURCES[3], [])
def test_random_damage_raises_value_error_and_nothing_else(source: bytes, damage: list[tuple[float, bytes]]) -> None:
    data = bytearray(source)
    # directories make up little of a file, so half of the damage goes to the last bytes and the first
    for number, (place, new) in enumerate(damage):
        where = int(place * min(len(data), 600))
        where = len(data) - where if number % 2 else where
        data[where : where + len(new)] = new
    check_all(bytes(data))


@given(
    st.binary(max_size=400),
    st.sampled_from([b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08", b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0"]),
)
def test_random_bytes_raise_value_error_and_nothing_else(body: bytes, head: bytes) -> None:
    check_all(head + body)


def check_all(data: bytes) -> None:
    try:
        frames = tiff_frames(BlockReader(data))
    except ValueError:
        frames = []
    cuts = []
    for found in frames:
        try:
            pieces = frame_pieces(BlockReader(data), found)
        except ValueError as error:
            cuts.append(str(error))
            continue
        # nothing comes out many times as large as what went in
        assert sum(map(len, pieces)) <= 3 * len(data) + 1000
        cuts.append(b"".join(pieces))
    assert_same_in_a_file(data, frames, cuts)


def assert_same_in_a_file(data: bytes, frames: list[TiffFrame], cuts: list[bytes | str]) -> None:
    """A range of a file has the same ``frames`` as ``data``, and gives the same ``cuts`` and messages."""
    with in_a_file(data) as file:
        tiff = BlockReader(file)
        if not frames:
            with pytest.raises(ValueError, match="TIFF"):
                tiff_frames(tiff)
            return
        assert tiff_frames(tiff) == frames
        for found, expected in zip(frames, cuts, strict=True):
            if isinstance(expected, bytes):
                assert b"".join(map(bytes, frame_pieces(tiff, found))) == expected
            else:
                with pytest.raises(ValueError, match=re.escape(expected)):
                    frame_pieces(tiff, found)


@pytest.mark.parametrize("width", [2**63 - 1, 2**62, 2**33])
def test_impossible_member_sizes_are_damage(width: int) -> None:
    """A BigTIFF of two frames with more pixels than any file has bytes."""
    values = {256: width, 257: 2**31, 258: 8, 259: 1, 262: 1, 273: 16, 279: 9}
    data = b"II" + struct.pack("<HHHQ", 43, 8, 0, 16)
    for link in (16 + 8 + 20 * len(values) + 8, 0):
        data += struct.pack("<Q", len(values))
        data += b"".join(struct.pack("<HHQQ", tag, 16, 1, value) for tag, value in values.items()) + struct.pack(
            "<Q", link
        )
    for frame in tiff_frames(BlockReader(data)):
        with pytest.raises(ValueError, match="state 9 bytes, and its pixels take"):
            frame_pieces(BlockReader(data), frame)
