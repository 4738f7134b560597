"""The index of a tar equals that of the standard library; damage is reported; headers are deterministic."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from interleaved_assets.io.archive.index import BLOCK, RECORD, TarIndex, index_tar, member_header, padding
from interleaved_assets.io.archive.source import open_tar
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets_tests.io.tars import pack, write_tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def index_of(data: bytes) -> TarIndex:
    return index_tar(lambda offset, size: data[offset : offset + size], len(data), "a.tar")


def contents(data: bytes) -> list[tuple[str, bytes]]:
    members = index_of(data).members
    return [(member.name, data[member.offset : member.offset + member.size]) for member in members]


@pytest.mark.parametrize("tar_format", FORMATS.values(), ids=FORMATS)
def test_members_are_where_the_standard_library_finds_them(tar_format: int) -> None:
    members = [("a.json", b"{}"), ("b/c.png", bytes(700)), ("d" * 90 + "/" + "e" * 80, b"long"), ("empty", b"")]
    data = pack(members, tar_format)
    assert contents(data) == members
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [info.offset_data for info in tar] == [member.offset for member in index_of(data).members]
    assert index_of(data)[1:] == (None, True, [], None)


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_long_and_foreign_names(tar_format: int) -> None:
    members = [("x" * 300 + ".json", b"{}"), ("grüße/日本.png", b"1"), ("ü" * 80, b"2")]
    assert contents(pack(members, tar_format)) == members


def test_names_that_are_not_utf8_stay_apart() -> None:
    data = bytearray(pack([("aX.json", b"1"), ("aY.json", b"2")], tarfile.USTAR_FORMAT))
    for at, byte in ((0, 0xE9), (1024, 0xE8)):
        data[at + 1] = byte
        header = bytes(data[at : at + 148]) + b" " * 8 + bytes(data[at + 156 : at + 512])
        data[at + 148 : at + 156] = b"%06o\0 " % sum(header)
    assert contents(bytes(data)) == [("a\\xe9.json", b"1"), ("a\\xe8.json", b"2")]


def test_global_pax_headers_hold_for_the_members_behind() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", pax_headers={"comment": "made by git archive"}) as tar:
        info = tarfile.TarInfo("a.json")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    assert contents(buffer.getvalue()) == [("a.json", b"{}")]


@pytest.mark.parametrize(("record", "kind"), [("path", tarfile.REGTYPE), ("linkpath", tarfile.LNKTYPE)])
def test_a_long_name_in_a_global_pax_header_is_not_given_to_every_member(record: str, kind: bytes) -> None:
    """With a name of 1 MB each, the members of a tar of some MB would take all of the memory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", pax_headers={record: "n/" * 5_000}) as tar:
        for number in range(1000):
            info = tarfile.TarInfo(f"{number}.json")
            info.type, info.linkname = kind, "a"
            tar.addfile(info)
    index = index_of(buffer.getvalue())
    assert index.damage is not None
    assert "the tar has longer names than bytes before byte " in index.damage
    assert sum(len(member.name) for member in index.members) < 5 * len(buffer.getvalue())


def test_folders_and_devices_are_no_members_and_links_stand_for_theirs() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, link in (
            ("folder", tarfile.DIRTYPE, ""),
            ("folder/a.png", tarfile.REGTYPE, ""),
            ("hard.png", tarfile.LNKTYPE, "folder/a.png"),
            ("folder/soft.png", tarfile.SYMTYPE, "a.png"),
            ("up/soft.png", tarfile.SYMTYPE, "../folder/a.png"),
            ("secret", tarfile.SYMTYPE, "/etc/passwd"),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("z.png", tarfile.REGTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, 3 * (kind == tarfile.REGTYPE)
            tar.addfile(info, io.BytesIO(b"png"))
    names = ["folder/a.png", "hard.png", "folder/soft.png", "up/soft.png", "z.png"]
    assert contents(buffer.getvalue()) == [(name, b"png") for name in names]
    assert index_of(buffer.getvalue()).notes == [
        "'secret' is a link to '/etc/passwd', which is not a member of the tar"
    ]


def linked(*entries: tuple[str, bytes | tuple[bytes, str]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of files, and of links, whose kind and target stand for their content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_symbolic_links_may_stand_before_their_members_and_lead_to_other_links() -> None:
    soft = tarfile.SYMTYPE
    data = linked(
        ("1.png", (soft, "2.png")), ("2.png", (soft, "folder/a.png")), ("folder/3.png", (soft, "../1.png")),
        ("folder/a.png", b"png"), ("4.png", (soft, "1.png")), ("z.png", b"z"),
    )  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    assert contents(data) == expected
    assert [content for _, content in expected] == [b"png"] * 5 + [b"z"]
    assert index_of(data).notes == []


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_targets_of_links_may_be_long(tar_format: int) -> None:
    name = f"{'x' * 300}.png"
    data = linked((name, b"png"), ("soft.png", (tarfile.SYMTYPE, name)), tar_format=tar_format)
    assert contents(data) == [(name, b"png"), ("soft.png", b"png")]


def test_links_lead_to_members_whose_names_begin_with_a_dot_and_a_slash() -> None:
    soft, hard = tarfile.SYMTYPE, tarfile.LNKTYPE
    data = linked(
        ("./a.png", b"a"), ("./b.png", (soft, "a.png")), ("./d/c.png", (soft, "../a.png")),
        ("./e.png", (hard, "a.png")), ("./d//f.png", b"f"), ("g.png", (soft, "./d/f.png")),
    )  # fmt: skip
    names = ["./a.png", "./b.png", "./d/c.png", "./e.png", "./d//f.png", "g.png"]
    assert contents(data) == list(zip(names, [b"a"] * 4 + [b"f"] * 2, strict=True))
    assert index_of(data).notes == []


def test_links_in_a_circle_or_to_nothing_are_noted_once_each() -> None:
    soft = tarfile.SYMTYPE
    data = linked(
        ("a", (soft, "b")), ("b", (soft, "a")), ("self", (soft, "self")), ("c", (soft, "d")), ("d", (soft, "none")),
        ("hard", (tarfile.LNKTYPE, "z.png")), ("z.png", b"z"),
    )  # fmt: skip
    index = index_of(data)
    assert [member.name for member in index.members] == ["z.png"]
    assert [note.partition(" is a link to ")[0] for note in index.notes] == [
        "'hard'",
        "'a'",
        "'b'",
        "'self'",
        "'c'",
        "'d'",
    ]


def test_a_link_to_a_member_in_which_the_tar_is_cut_is_cut_too() -> None:
    data = linked(("a.png", (tarfile.SYMTYPE, "b.png")), ("b.png", bytes(1000)))[:1600]
    index = index_of(data)
    assert [(member.name, member.size) for member in index.members] == [("a.png", 1000), ("b.png", 1000)]
    assert index.damage == "the tar is cut at byte 1600, in member 'b.png'"


def test_the_rest_of_a_file_in_another_volume_is_noticed() -> None:
    data = pack([("a.json", b"{}"), ("b.png", b"rest")], tarfile.GNU_FORMAT)
    block = bytearray(data[2 * BLOCK : 3 * BLOCK])
    block[156:157], block[148:156] = b"M", b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    data = data[: 2 * BLOCK] + block + data[3 * BLOCK :]
    assert contents(data) == [("a.json", b"{}")]
    assert index_of(data).notes == ["'b.png' is the rest of a file in an earlier volume, and is left out"]


def test_a_pax_record_that_does_not_end_its_line_is_none() -> None:
    data = bytearray(pack([("é", b"1")]))
    at = data.index(b" path=")
    assert contents(bytes(data)) == [("é", b"1")]
    data[at - 2 : at] = b"10"  # one less than it is long
    assert [name for name, _ in contents(bytes(data))] == ["?"]


def test_sizes_beyond_octal_are_read() -> None:
    info = tarfile.TarInfo("big")
    info.size = 2**40
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        index = index_of(info.tobuf(tar_format) + b"some of it")
        assert [(member.name, member.size) for member in index.members] == [("big", 2**40)]
        assert index.damage is not None
        assert "in member 'big'" in index.damage


def test_a_cut_tar_gives_the_members_in_front_of_the_cut() -> None:
    data = pack([("a.json", b"1" * 600), ("b.png", b"2" * 600)])
    second = 3 * BLOCK
    assert index_of(data[: second + BLOCK + 100]).damage == f"the tar is cut at byte {second + 612}, in member 'b.png'"
    assert [member.name for member in index_of(data[: second + 612]).members] == ["a.json", "b.png"]
    in_header = index_of(data[: second + 100])
    assert [member.name for member in in_header.members] == ["a.json"]
    assert in_header.damage == f"the tar is cut at byte {second} of {second + 100}"
    at_border = index_of(data[:second])
    assert (at_border.damage, at_border.is_complete) == (None, False)
    assert at_border.notes == ["it has no end mark, so members may be missing"]
    assert (at_border.shortfall, in_header.shortfall) == (at_border.notes[0], in_header.damage)


def test_a_damaged_header_ends_the_index() -> None:
    data = bytearray(pack([("a.json", b"1"), ("b.png", b"2")]))
    data[2 * BLOCK + 5] ^= 1
    index = index_of(bytes(data))
    assert [member.name for member in index.members] == ["a.json"]
    assert index.damage == f"the tar has a damaged header at byte {2 * BLOCK} of {len(data)}"


def test_an_extension_header_whose_size_is_no_number_ends_the_index() -> None:
    data = bytearray(pack([("a.json", b"1"), ("é" * 200, b"2")]))
    header = data[2 * BLOCK : 3 * BLOCK]  # of the pax records with the long name
    header[124:136], header[148:156] = b"no number 12", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[2 * BLOCK : 3 * BLOCK] = header
    index = index_of(bytes(data))
    assert [member.name for member in index.members] == ["a.json"]
    assert index.damage == f"the tar has a damaged header at byte {2 * BLOCK} of {len(data)}"


@pytest.mark.parametrize("seed", range(30))
def test_any_damage_gives_an_index_or_a_shard_error(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(pack([("x" * 150, b"{}"), ("b.png", bytes(600)), ("ü.json", b"[]")]))
    for _ in range(rng.randint(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    cut = bytes(data[: rng.randrange(1, len(data))])
    try:
        members = index_of(cut).members
    except ShardError:
        members = []
    assert len(members) <= 3


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"x", ""),
        (b"\0" * 100 + b"x" * 600, ""),
        (b"PK\3\4" + bytes(600), "; it is a ZIP archive: pack its files as a tar; the web archives in a WACZ"),
        (
            b"filedesc://a.arc 0.0.0.0 20040204213402 text/plain 77\n",
            "; it is a web archive in the older form ARC: make",
        ),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "; it is compressed with zstd: unpack it, or pack it with gzip"),
        (b"\x1f\x8b" + bytes(600), "; it is compressed twice: unpack it once"),
        (b"<html>" * 200, "; it is a page of HTML or XML, perhaps the answer of a server"),
        (b"version https://git-lfs.github.com/spec/v1\n", "; it is a pointer of Git LFS, not the file: fetch it"),
    ],
)
def test_what_is_no_tar_is_refused_with_what_it_is(content: bytes, advice: str) -> None:
    with pytest.raises(ShardError) as error:
        index_of(content)
    assert str(error.value).startswith(f"a.tar is not a tar: its first 512 bytes are not a tar header{advice}")
    assert str(error.value).endswith("header") is not bool(advice)


def test_an_empty_tar_has_no_members_and_an_empty_file_is_none() -> None:
    assert index_of(pack([])) == ([], None, True, [], None)
    with pytest.raises(ShardError, match="is empty"):
        index_of(b"")


def test_records_of_a_pax_header_end_where_no_length_follows() -> None:
    records = b"14 path=b.png\n" + b"7" * 40
    info = tarfile.TarInfo("PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    header = info.tobuf(tarfile.USTAR_FORMAT) + records + padding(len(records))
    assert contents(header + pack([("a.png", b"1")])) == [("b.png", b"1")]


def test_sparse_members_are_refused_by_name() -> None:
    header = bytearray(member_header("holes.png", 512))
    header[156:157] = b"S"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    with pytest.raises(ShardError, match=r"member 'holes\.png' is stored sparse; pack the tar again"):
        index_of(bytes(header) + bytes(512 + 1024))


@pytest.mark.parametrize("order", [("path", "GNU.sparse.name"), ("GNU.sparse.name", "path")])
def test_a_sparse_member_of_pax_is_named_as_the_archiver_knows_it(order: tuple[str, str]) -> None:
    names = {"path": "./GNUSparseFile.7/holes.png", "GNU.sparse.name": "holes.png"}
    info = tarfile.TarInfo("GNUSparseFile.7/holes.png")
    info.pax_headers = {"GNU.sparse.major": "1", **{key: names[key] for key in order}}
    with pytest.raises(ShardError, match=r"member 'holes\.png' is stored sparse"):
        index_of(info.tobuf(tarfile.PAX_FORMAT) + bytes(1024))


def test_data_behind_the_end_mark_is_noticed() -> None:
    data = pack([("a.json", b"1")])
    index = index_of(data + data)
    assert len(index.members) == 1
    assert index.notes == [f"data after its end mark at byte {2 * BLOCK} are not read"]


@pytest.mark.parametrize("name", ["a.json", "x" * 100, "x" * 101, "é.png", "%FC%252E.12.tiff"])
@pytest.mark.parametrize("size", [0, 1, 8**11 - 1, 8**11])
def test_headers_are_those_of_the_standard_library(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    assert member_header(name, size) == info.tobuf(tarfile.PAX_FORMAT)


def test_padding() -> None:
    assert [len(padding(size)) for size in (0, 1, 511, 512, 513)] == [0, 511, 1, 0, 511]
    assert len(padding(1024, RECORD)) == RECORD - 1024


def test_a_local_tar_is_on_disk_and_a_compressed_one_decompressed(tmp_path: Path) -> None:
    plain = write_tar(tmp_path / "a.tar", ("a.json", b"{}"))
    with open_tar(plain) as tar:
        assert (tar.is_on_disk, tar.has_offsets) == (True, True)
        assert bytes(tar.content(tar.index.members[0])) == b"{}"
    (tmp_path / "b.tar").write_bytes(gzip.compress(Path(plain).read_bytes()))
    with open_tar(str(tmp_path / "b.tar")) as tar:
        assert (tar.is_on_disk, tar.has_offsets, tar.broken_off) == (True, False, None)
        assert bytes(tar.content(tar.index.members[0])) == b"{}"


def test_truncated_gzip_gives_what_came_before(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(200_000)
    packed = gzip.compress(pack([("a.json", b"{}"), ("b.png", noise)]))
    (tmp_path / "a.tar.gz").write_bytes(packed[: len(packed) // 2])
    with open_tar(str(tmp_path / "a.tar.gz")) as tar:
        assert [member.name for member in tar.index.members] == ["a.json", "b.png"]
        assert tar.index.damage == f"the compressed data end in the middle, after {tar.size} bytes of tar"
        assert 50_000 < tar.size < 150_000
        assert tar.is_cut(tar.index.members[1])


def test_gzip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(pack([("a.json", b"{}")])))
    packed[-8] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(packed)
    with (
        pytest.raises(ShardError, match=r"a\.tar\.gz: the gzip data are damaged"),
        open_tar(str(tmp_path / "a.tar.gz")),
    ):
        pass


@pytest.mark.parametrize("pack_as", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compressed_data_that_end_before_the_first_byte_are_not_called_empty(
    pack_as: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / "a.tar").write_bytes(pack_as(pack([("a.json", b"{}")]))[:12])
    expected = r"a\.tar: the compressed data end in the middle, after 0 bytes of tar\. Fetch or write it again\."
    with pytest.raises(ShardError, match=expected), open_tar(str(tmp_path / "a.tar")):
        pass


@pytest.mark.parametrize(("pack_whole", "error"), [(gzip.compress, "Error -3"), (lzma.compress, "Corrupt input data")])
def test_damage_in_the_middle_leaves_what_is_in_front_of_it(
    tmp_path: Path, pack_whole: Callable[[bytes], bytes], error: str
) -> None:
    noise = random.Random(0).randbytes(4_000_000)
    packed = bytearray(pack_whole(pack([("a.json", b"{}"), ("b.png", noise)])))
    packed[len(packed) // 2 : len(packed) // 2 + 100_000] = b"\xff" * 100_000
    (tmp_path / "a.tar").write_bytes(packed)
    with open_tar(str(tmp_path / "a.tar")) as tar:
        assert 1_000_000 < tar.size < 3_000_000
        assert str(tar.index.damage).startswith(
            f"the compressed data are damaged after {tar.size} bytes of tar: {error}"
        )


def test_damaged_bzip2_is_damage_and_not_a_full_disk(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(2_000_000)
    packed = bytearray(bz2.compress(pack([("a.json", b"{}"), ("b.png", noise)])))
    packed[len(packed) // 2] ^= 255
    (tmp_path / "a.tar").write_bytes(packed)
    with open_tar(str(tmp_path / "a.tar")) as tar:
        assert 500_000 < tar.size < 1_500_000
        assert tar.index.damage == f"the compressed data are damaged after {tar.size} bytes of tar: Invalid data stream"
    (tmp_path / "b.tar").write_bytes(packed[:4] + b"damage" + packed[10:])
    with (
        pytest.raises(ShardError, match=r"damaged after 0 bytes of tar: Invalid data stream\. Fetch"),
        open_tar(str(tmp_path / "b.tar")),
    ):
        pass


def test_a_missing_tar_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.tar"), open_tar(str(tmp_path / "none.tar")):
        pass
    (tmp_path / "a.tar").touch()
    with pytest.raises(ShardError, match=r"a\.tar is empty"), open_tar(str(tmp_path / "a.tar")):
        pass
