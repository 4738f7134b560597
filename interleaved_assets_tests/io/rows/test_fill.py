"""Filling image rows from their locators: byte ranges, members, whole files, frames, and every row error."""

import errno
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec import AbstractFileSystem
from PIL import Image

from interleaved_assets.io.rows.fetch import Access
from interleaved_assets.io.rows.fill import bytes_to_fetch, materialize, materialize_parts
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.model.source_ref import build_source_ref
from interleaved_assets_tests.io.row_tables import rows_table
from interleaved_assets_tests.io.tiff.cut import cut_frame
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import EXPIRED, SKEWED, Refusal, s3_gate
from interleaved_assets_tests.system_calls import failing, files_opened

MEMBERS = {"a.png": b"the bytes of a", "folder/b.png": b"those of b", "empty.png": b""}


def tiff_bytes() -> bytes:
    frames = [Image.fromarray(np.full((8 + number, 9, 3), 40 * number, np.uint8)) for number in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "TIFF", save_all=True, append_images=frames[1:], compression="jpeg")
    return file.getvalue()


TIFF = tiff_bytes()
NAME_IT = ": allowed_roots in the library, storage.raw_root in a project, has to name a folder above it"


def tar_bytes(mode: str = "w", members: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:
        for name, data in (members or {**MEMBERS, "d.tiff": TIFF}).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    return file.getvalue()


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "s.tar").write_bytes(tar_bytes())
    (folder / "s.tar.gz").write_bytes(tar_bytes("w:gz"))
    (folder / "plain.jpg").write_bytes(b"a whole file")
    (folder / "many.tiff").write_bytes(TIFF)
    return folder


def fill(refs: Sequence[str | None], root: object, **options: object) -> tuple[list[bytes | None], list[str | None]]:
    rows = [{"sample_id": f"s{number}", "source_ref": ref} for number, ref in enumerate(refs)]
    options.setdefault("allowed_roots", [str(root)])
    filled = materialize(rows_table(rows), **options)
    assert filled.schema.names == rows_table([]).schema.names
    assert filled["binary_content"].type == pa.large_binary()
    return filled["binary_content"].to_pylist(), filled["materialize_error"].to_pylist()


def the_error(ref: str | None, root: object, **options: object) -> str:
    (data,), (error,) = fill([ref], root, **options)
    assert data is None
    assert error is not None
    return error


# ---------------------------------------------------------------- the three ways


def test_a_byte_range(raw: Path) -> None:
    content = (raw / "s.tar").read_bytes()
    at = content.index(b"the bytes of a")
    refs = [build_source_ref(f"{raw}/s.tar", "a.png", at, 14), build_source_ref(f"{raw}/s.tar", None, at + 4, 5)]
    assert fill(refs, raw) == ([b"the bytes of a", b"bytes"], [None, None])
    assert fill([build_source_ref(f"{raw}/s.tar", "empty.png", at, 0)], raw) == ([b""], [None])


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
def test_a_member(raw: Path, name: str) -> None:
    refs = [build_source_ref(f"{raw}/{name}", member) for member in ("folder/b.png", "a.png", "empty.png", "a.png")]
    assert fill(refs, raw)[0] == [b"those of b", b"the bytes of a", b"", b"the bytes of a"]


def test_an_offset_into_a_compressed_tar_is_not_one_into_the_file(raw: Path) -> None:
    # readers that count in the uncompressed stream write such locators; the member is what they mean
    ref = build_source_ref(f"{raw}/s.tar.gz", "a.png", 512, 14)
    assert fill([ref], raw) == ([b"the bytes of a"], [None])


def test_a_whole_file(raw: Path) -> None:
    refs = [build_source_ref(f"{raw}/plain.jpg"), build_source_ref(f"file://{raw}/plain.jpg")]
    assert fill(refs, raw)[0] == [b"a whole file"] * 2


@pytest.mark.parametrize("place", ["range", "member", "member of a compressed tar", "whole file"])
def test_frames(raw: Path, place: str) -> None:
    at = (raw / "s.tar").read_bytes().index(TIFF)
    locator = {
        "range": (f"{raw}/s.tar", "d.tiff", at, len(TIFF)),
        "member": (f"{raw}/s.tar", "d.tiff", None, None),
        "member of a compressed tar": (f"{raw}/s.tar.gz", "d.tiff", None, None),
        "whole file": (f"{raw}/many.tiff", None, None, None),
    }[place]
    found, errors = fill([build_source_ref(*locator, frame_index=index) for index in (2, 0, 1)], raw)
    assert errors == [None] * 3
    assert found == [cut_frame(TIFF, index) for index in (2, 0, 1)]


def test_only_image_rows_without_bytes_are_filled(raw: Path) -> None:
    ref = build_source_ref(f"{raw}/plain.jpg")
    table = rows_table(
        [
            {"sample_id": "a", "binary_content": b"there already", "source_ref": ref},
            {"sample_id": "a", "modality": "text", "source_ref": ref},
            {"sample_id": "a", "source_ref": ref},
        ]
    )
    filled = materialize(table, allowed_roots=[str(raw)])
    assert filled["binary_content"].to_pylist() == [b"there already", None, b"a whole file"]
    assert filled.drop_columns(["binary_content"]) == table.drop_columns(["binary_content"])
    assert materialize(filled.slice(0, 2)) == filled.slice(0, 2)


def test_columns_that_the_table_lacks_are_made(raw: Path) -> None:
    table = pa.table({"sample_id": ["a"], "position": pa.array([0], pa.int32()), "modality": ["image"]})
    filled = materialize(table)
    assert filled["binary_content"].type == pa.large_binary()
    assert filled["materialize_error"].to_pylist() == [
        "missing_source: the row has neither bytes nor a path in source_ref"
    ]


# ---------------------------------------------------------------- what is shared is fetched once


class Calls:
    """Counts the calls of ``cat_ranges``, and what they ask for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *filesystems: AbstractFileSystem) -> None:
        self.asked: list[tuple[str, int]] = []
        for fs in filesystems:
            monkeypatch.setattr(fs, "cat_ranges", self._counting(type(fs).__name__, fs.cat_ranges))

    def _counting(self, name: str, method: Callable) -> Callable:
        def cat_ranges(paths, starts, ends, **options):
            self.asked.append((name, len(paths)))
            return method(paths, starts, ends, **options)

        return cat_ranges


def test_one_call_for_each_remote_filesystem_and_each_range_once(
    raw: Path, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.fs.pipe({f"{bucket}/s.tar": (raw / "s.tar").read_bytes(), f"{bucket}/whole.jpg": b"remote and whole"})
    tiff_at = (raw / "s.tar").read_bytes().index(TIFF)
    frames = [(f"{place}/s.tar", "d.tiff", tiff_at, len(TIFF), index) for place in (raw, bucket) for index in range(3)]
    refs = [build_source_ref(*frame) for frame in frames]
    refs += [build_source_ref(f"{bucket}/whole.jpg"), build_source_ref(f"{raw}/plain.jpg")] * 2
    refs += [build_source_ref(f"{bucket}/s.tar", "a.png")]
    calls = Calls(monkeypatch, s3_server.fs)
    with files_opened("") as opened:
        found, errors = fill(refs, raw, allowed_roots=[str(raw), bucket], storage_options=s3_server.storage_options)
    assert errors == [None] * len(refs)
    assert found[:6] == [cut_frame(TIFF, index) for index in (0, 1, 2)] * 2
    assert found[6:] == [b"remote and whole", b"a whole file"] * 2 + [b"the bytes of a"]
    assert calls.asked == [("S3FileSystem", 2)]
    assert sorted(path for path in opened if path.startswith(str(raw))) == [f"{raw}/plain.jpg", f"{raw}/s.tar"]


def test_a_tar_is_opened_once_for_all_its_members(raw: Path) -> None:
    with files_opened("/s.tar") as for_one:
        fill([build_source_ref(f"{raw}/s.tar", "a.png")], raw)
    with files_opened("/s.tar") as for_all:
        fill([build_source_ref(f"{raw}/s.tar", name) for name in ("folder/b.png", "a.png", "d.tiff")], raw)
    assert len(for_all) == len(for_one) > 0


# ---------------------------------------------------------------- what can be wrong with a row


@pytest.mark.parametrize(
    ("ref", "error"),
    [
        (None, "missing_source: the row has neither bytes nor a path in source_ref"),
        ("{}", "missing_source: "),
        ("[1]", "invalid_source_ref: source_ref must be a JSON object"),
        ("{broken", "invalid_source_ref: "),
        ('{"path": "x", "byte_offset": -1}', "invalid_source_ref: source_ref field 'byte_offset' must be a whole"),
    ],
)
def test_a_locator_that_says_nothing(raw: Path, ref: str | None, error: str) -> None:
    assert the_error(ref, raw).startswith(error)


@pytest.mark.parametrize(
    ("locator", "error"),
    [
        (("{raw}/none.tar", "a.png", 0, 5), "unreadable_source: cannot read {raw}/none.tar: No such file"),
        (("{raw}/none.tar", "a.png"), "unreadable_source: cannot read {raw}/none.tar: No such file"),
        (("{raw}/none.jpg",), "unreadable_source: cannot read {raw}/none.jpg: No such file"),
        (("{raw}",), "unreadable_source: cannot read {raw}: it is not a regular file"),
        (("{raw}/fifo",), "unreadable_source: cannot read {raw}/fifo: it is not a regular file"),
        (("{raw}/plain.jpg", None, 8, 10), "short_read: 4 of 10 bytes at offset 8 of {raw}/plain.jpg"),
        (("{raw}/plain.jpg", None, 100, 10), "short_read: 0 of 10 bytes at offset 100 of {raw}/plain.jpg"),
        (("{raw}/plain.jpg", None, 8, None), "invalid_source_ref: byte_offset and byte_size go together"),
        (("{raw}/s.tar", "c.png"), "missing_member: c.png is not in {raw}/s.tar"),
        (("{raw}/s.tar", "folder"), "missing_member: folder is not in {raw}/s.tar"),
        (("{raw}/plain.jpg", "a.png"), "unreadable_source: {raw}/plain.jpg is not a tar: "),
        (("{raw}/s.tar", None, None, None, None, "3"), "invalid_source_ref: {raw}/s.tar: tar has no parts"),
        (
            ("{raw}/none.parquet", None, None, None, None, "0:jpg"),
            "unreadable_source: cannot read {raw}/none.parquet: ",
        ),
        (("{raw}/cut.tar", "folder/b.png"), "unreadable_source: {raw}/cut.tar is not a sound tar: "),
        (("{raw}/cut.tar.gz", "d.tiff"), "short_read: d.tiff of {raw}/cut.tar.gz: "),
        (("{raw}/many.tiff", None, None, None, 3), "frame_out_of_range: frame 3 of a TIFF with 3"),
        (("{raw}/plain.jpg", None, None, None, 0), "invalid_tiff: not a TIFF"),
        (("{raw}/cut.tiff", None, None, None, 2), "invalid_tiff: directory 2 of the TIFF"),
        (("{raw}/cut.tiff", None, None, None, 5), "invalid_tiff: directory 2 of the TIFF"),
    ],
)
def test_a_locator_that_leads_nowhere(raw: Path, locator: tuple, error: str) -> None:
    (raw / "cut.tar").write_bytes(tar_bytes()[:1100])
    (raw / "cut.tar.gz").write_bytes(tar_bytes("w:gz")[:300])
    (raw / "cut.tiff").write_bytes(TIFF[: len(TIFF) // 2])
    os.mkfifo(raw / "fifo")
    path, *rest = locator
    found = the_error(build_source_ref(path.format(raw=raw), *rest), raw)
    assert found.startswith(error.format(raw=raw))


def test_an_empty_range_beside_a_member_stands_for_the_member(raw: Path) -> None:
    locators = [("s.tar", "a.png", 0, 0), ("s.tar", "folder/b.png", 700, 0), ("s.tar", "empty.png", 0, 0)]
    refs = [build_source_ref(f"{raw}/{name}", *rest) for name, *rest in locators]
    assert fill(refs, raw) == ([MEMBERS["a.png"], MEMBERS["folder/b.png"], b""], [None] * 3)
    assert fill([build_source_ref(f"{raw}/plain.jpg", None, 2, 0)], raw) == ([b""], [None])
    error = the_error(build_source_ref(f"{raw}/s.tar", "none.png", 0, 0), raw)
    assert error.startswith("missing_member: none.png is not in")


def test_a_member_that_ends_early_is_a_short_read_and_those_before_it_are_whole(raw: Path) -> None:
    whole = tar_bytes()
    (raw / "cut.tar").write_bytes(whole[: whole.index(TIFF) + 20])
    found, errors = fill([build_source_ref(f"{raw}/cut.tar", name) for name in ("d.tiff", "a.png")], raw)
    assert found == [None, b"the bytes of a"]
    assert errors[0].startswith("short_read: d.tiff of")


@pytest.mark.parametrize(
    "locator",
    [("plain.jpg", None, 0, 12), ("plain.jpg",), ("s.tar", "a.png"), ("s.tar.gz", "a.png")],
    ids=["range", "whole file", "member", "compressed member"],
)
def test_what_is_larger_than_the_limit_is_not_fetched(raw: Path, locator: tuple) -> None:
    ref = build_source_ref(f"{raw}/{locator[0]}", *locator[1:])
    assert fill([ref], raw, limits=TarLimits(max_member_bytes=14))[1] == [None]
    assert the_error(ref, raw, limits=TarLimits(max_member_bytes=11)).startswith("member_too_large: ")


@pytest.mark.parametrize(
    "path",
    [
        "{raw}/../secret.jpg",
        "{raw}/link.jpg",
        "{raw}2/secret.jpg",
        "/etc/hostname",
        "s3://bucket/raw/a.jpg",
        "http://127.0.0.1:9/a.jpg",
        "simplecache::file://{raw}/plain.jpg",
    ],
)
def test_a_forbidden_place_is_not_touched(raw: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (raw.parent / "secret.jpg").write_bytes(b"secret")
    (raw / "link.jpg").symlink_to(raw.parent / "secret.jpg")
    Path(f"{raw}2").mkdir()
    Path(f"{raw}2", "secret.jpg").write_bytes(b"secret")
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda *_: pytest.fail("a filesystem was asked for"))
    path = path.format(raw=raw)
    with files_opened("") as opened:
        for rest in ((), ("a.png",), (None, 0, 3)):
            assert (
                the_error(build_source_ref(path, *rest), raw) == f"forbidden_path: {path} is not below {raw}{NAME_IT}"
            )
    assert opened == []


def test_a_root_that_is_given_twice_is_named_once(raw: Path) -> None:
    ref = build_source_ref(f"{raw.parent}/secret.jpg")
    assert the_error(ref, raw, allowed_roots=[str(raw), str(raw)]).endswith(f"secret.jpg is not below {raw}{NAME_IT}")


def test_without_roots_no_place_is_allowed(raw: Path) -> None:
    path = f"{raw}/plain.jpg"
    for roots in (None, []):
        assert the_error(build_source_ref(path), raw, allowed_roots=roots) == (
            f"forbidden_path: {path} is not below any allowed root{NAME_IT}"
        )


def test_another_bucket_is_forbidden(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe({f"{bucket}/raw/a.jpg": b"a", f"{bucket}/raw2/a.jpg": b"secret", "s3://shared/a.jpg": b"secret"})
    refs = [build_source_ref(path) for path in (f"{bucket}/raw/a.jpg", f"{bucket}/raw2/a.jpg", "s3://shared/a.jpg")]
    found, errors = fill(refs, f"{bucket}/raw", storage_options=s3_server.storage_options)
    assert found == [b"a", None, None]
    assert [str(error).partition(":")[0] for error in errors] == ["None", "forbidden_path", "forbidden_path"]
    s3_server.fs.rm("s3://shared/a.jpg")


def test_errors_of_s3(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe({f"{bucket}/a.jpg": b"123456", f"{bucket}/s.tar": tar_bytes()})
    locators = [
        (f"{bucket}/a.jpg", None, 4, 9),
        (f"{bucket}/none.jpg", None, 4, 9),
        (f"{bucket}/none.jpg",),
        (f"{bucket}/none.tar", "a.png"),
        (f"{bucket}/s.tar", "none.png"),
    ]
    refs = [build_source_ref(*locator) for locator in locators]
    _, errors = fill(refs, bucket, storage_options=s3_server.storage_options)
    assert [error.partition(":")[0] for error in errors] == [
        "short_read",
        "unreadable_source",
        "unreadable_source",
        "unreadable_source",
        "missing_member",
    ]
    assert "none.jpg" in errors[1]
    ref = build_source_ref(f"{bucket}/a.jpg")
    options = {"storage_options": s3_server.storage_options}
    assert the_error(ref, bucket, limits=TarLimits(max_member_bytes=5), **options).startswith("member_too_large: ")
    assert fill([ref], bucket, limits=TarLimits(max_member_bytes=6), **options)[0] == [b"123456"]


def test_a_failure_that_may_pass_blames_no_row() -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9"}
    options["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    for ref in (build_source_ref("s3://bucket/a.jpg"), build_source_ref("s3://bucket/s.tar", "a.png")):
        with pytest.raises(StorageUnavailable, match="try again later"):
            fill([ref], "s3://bucket", storage_options=options)


@pytest.mark.parametrize("refusal", [EXPIRED, SKEWED, Refusal(403, "InvalidAccessKeyId", "There is no such key.")])
@pytest.mark.parametrize("member", [None, "a.png"])
def test_credentials_that_are_refused_blame_no_row(
    s3_server: S3Server, bucket: str, refusal: Refusal, member: str | None
) -> None:
    s3_server.fs.pipe({f"{bucket}/s.tar": tar_bytes()})
    with s3_gate(s3_server) as gate:
        gate.refuses = lambda method, path: refusal
        with pytest.raises(StorageError, match=r"cannot read s3://"):
            fill([build_source_ref(f"{bucket}/s.tar", member)], bucket, storage_options=gate.storage_options)


def test_one_object_that_may_not_be_read_is_an_error_of_its_row(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe({f"{bucket}/a.png": b"123", f"{bucket}/b.png": b"456"})
    refs = [build_source_ref(f"{bucket}/{name}.png") for name in "ab"]
    with s3_gate(s3_server) as gate:
        gate.refuses = lambda method, path: Refusal(403, "AccessDenied", "Access Denied") if "a.png" in path else None
        data, errors = fill(refs, bucket, storage_options=gate.storage_options)
    assert data == [None, b"456"]
    assert errors[0] is not None
    assert errors[0].startswith("unreadable_source: cannot read s3://")


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EHOSTDOWN, errno.EMFILE], ids=errno.errorcode.get)
def test_a_mount_or_process_that_fails_blames_no_row(raw: Path, number: int) -> None:
    with failing("open", "/plain.jpg", OSError(number, "it is away")), pytest.raises(StorageError, match="it is away"):
        fill([build_source_ref(f"{raw}/plain.jpg")], raw)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ELOOP], ids=errno.errorcode.get)
def test_a_file_that_cannot_be_opened_is_an_error_of_its_row(raw: Path, number: int) -> None:
    with failing("open", "/plain.jpg", OSError(number, "not this one")):
        assert "not this one" in the_error(build_source_ref(f"{raw}/plain.jpg"), raw)


@pytest.mark.parametrize("name", ["s.tar", "s.tar.gz"])
def test_a_disk_that_fails_blames_no_row(raw: Path, name: str) -> None:
    ref = build_source_ref(f"{raw}/{name}", "a.png")
    with (
        failing("open", f"/{name}", OSError(errno.EIO, "the disk is away")),
        pytest.raises(StorageError, match=f"cannot read {raw}/{name}: the disk is away"),
    ):
        fill([ref], raw)


def test_a_full_scratch_disk_blames_no_row(raw: Path) -> None:
    ref = build_source_ref(f"{raw}/s.tar.gz", "a.png")
    with (
        failing("open", tempfile.gettempdir(), OSError(errno.ENOSPC, "No space left on device")),
        pytest.raises(StorageError, match=r"to the scratch folder .*: No space left on device"),
    ):
        fill([ref], raw)


# ---------------------------------------------------------------- errors of before


def test_an_error_of_the_shard_stays_and_one_of_an_earlier_fetch_does_not(raw: Path) -> None:
    ref = build_source_ref(f"{raw}/plain.jpg")
    earlier = [
        ("frame_mismatch: 3 by 4, not 5 by 6", ref),
        ("short_read: 3 of 12 bytes", ref),
        ("unreadable_source: not there yet", ref),
        ("missing_member: x.png is not in the shard", None),
        ("words of another tool", ref),
        (None, ref),
    ]
    table = rows_table([{"sample_id": "a", "materialize_error": error, "source_ref": ref} for error, ref in earlier])
    filled = materialize(table, allowed_roots=[str(raw)])
    whole = b"a whole file"
    assert filled["binary_content"].to_pylist() == [None, whole, whole, None, None, whole]
    assert filled["materialize_error"].to_pylist() == [earlier[0][0], None, None, earlier[3][0], earlier[4][0], None]


def test_how_much_is_to_be_fetched(raw: Path) -> None:
    refs = [
        build_source_ref("/a.tar", "m", 5, 100, 0),
        build_source_ref("/a.tar", "m", 5, 100, 1),  # another frame of the same member
        build_source_ref("/a.tar", "m", 200, 50),
        build_source_ref("/b.jpg"),
        "no json",
        None,
    ]
    table = rows_table([{"sample_id": "a", "source_ref": ref} for ref in refs])
    assert bytes_to_fetch(table).tolist()[:5] == [100, 0, 50, 2**20, 0]


def test_an_image_named_like_a_tiff_is_frame_0(raw: Path) -> None:
    """As the tar reader has it; a row read without bytes learns the type when they are fetched."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(30)
    (raw / "odd.tiff").write_bytes(png)
    refs = [build_source_ref(f"{raw}/odd.tiff", None, None, None, frame) for frame in (0, 1)]
    table = rows_table(
        [
            {"sample_id": "a", "position": row, "source_ref": ref, "content_type": "image/tiff"}
            for row, ref in enumerate(refs)
        ]
    )
    filled = materialize(table, allowed_roots=[str(raw)])
    assert filled["binary_content"].to_pylist() == [png, None]
    assert filled["content_type"].to_pylist() == ["image/png", "image/tiff"]
    (error,) = filled["materialize_error"].drop_null().to_pylist()
    assert error == "frame_out_of_range: frame 1 of what is image/png and no TIFF: its one image is frame 0"


def test_rows_that_share_an_image_are_made_a_part_at_a_time(raw: Path) -> None:
    (raw / "big.jpg").write_bytes(bytes(2**20))
    ref = build_source_ref(f"{raw}/big.jpg")
    table = rows_table([{"sample_id": f"s{row // 2}", "position": row % 2, "source_ref": ref} for row in range(200)])
    before, sizes, count = pa.total_allocated_bytes(), [], 0
    for part in materialize_parts(table, 8 * 2**20, Access(allowed_roots=[str(raw)])):
        count += part.num_rows
        sizes.append(pa.total_allocated_bytes() - before)
        assert part["materialize_error"].null_count == part.num_rows
        del part
    assert (count, len(sizes)) == (200, 34)  # 3 samples of 2 MiB in each part
    assert max(sizes) < 20 * 2**20


def test_a_sample_is_filled_up_to_its_limit(raw: Path) -> None:
    """600 frames may share one strip, and rows one image: what is cut out is not bounded by what is fetched."""
    (raw / "big.jpg").write_bytes(bytes(1000))
    ref = build_source_ref(f"{raw}/big.jpg")
    table = rows_table([{"sample_id": f"s{row // 3}", "position": row % 3, "source_ref": ref} for row in range(6)])
    filled = materialize(table, allowed_roots=[str(raw)], limits=TarLimits(max_sample_bytes=2000))
    assert [value and len(value) for value in filled["binary_content"].to_pylist()] == [1000, 1000, None] * 2
    errors = filled["materialize_error"].drop_null().to_pylist()
    assert (
        errors
        == ["sample_too_large: with 1000 bytes more the rows of the sample exceed 2000; raise max_sample_bytes"] * 2
    )


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nope://b/x.jpg", "cannot reach nope://b/x.jpg: Protocol not known"),
        ("sftp://b/x.jpg", "cannot reach sftp://b/x.jpg: "),
    ],
)
def test_a_place_that_no_client_reaches_is_an_error_of_its_row(raw: Path, path: str, error: str) -> None:
    refs = [build_source_ref(path, None, 0, 3), build_source_ref(f"{raw}/plain.jpg")]
    found, errors = fill(refs, raw, allowed_roots=[str(raw), path.rpartition("/")[0]])
    assert found == [None, b"a whole file"]
    assert errors[0].startswith(f"unreadable_source: {error}")


def test_ranges_of_a_bucket_that_are_empty_or_over_the_limit(s3_server: S3Server, bucket: str) -> None:
    s3_server.fs.pipe_file(f"{bucket}/a.jpg", b"0123456789")
    refs = [build_source_ref(f"{bucket}/a.jpg", None, 2, size) for size in (0, 3, 4)]
    options = {"storage_options": s3_server.storage_options, "limits": TarLimits(max_member_bytes=3)}
    assert fill(refs, bucket, **options) == (
        [b"", b"234", None], [None, None, f"member_too_large: {bucket}/a.jpg: 4 bytes, over 3"],
    )  # fmt: skip
