import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from interleaved_assets.io.storage import atomic_output
from interleaved_assets.io.tar.reader import read_tar_shard
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.errors import ReadBackError, ShardError, StorageError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.stages.read_back import WrittenSamples
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing

JPEG = b"\xff\xd8\xff"
Members = list[tuple[str, bytes]]


def row(
    sample_id: str, position: int, modality: str, content: str | bytes | None = None, **more: Any
) -> dict[str, Any]:
    column = "binary_content" if isinstance(content, bytes) else "text_content"
    return {"sample_id": sample_id, "position": position, "modality": modality, column: content, **more}


ROWS = [
    row("page.1", -1, "metadata"),
    row("page.1", 0, "text", "größer"),
    row("page.1", 0, "image", JPEG + b"zero"),
    row("page.1", 3, "image", JPEG + b"three", content_type="image/jpeg"),
    row("__folder__/b", -1, "metadata"),
    row("__folder__/b", 1, "text", "only text"),
    row("__folder__/b", 2, "image", None, materialize_error="missing_member: b.2.png"),
    row("empty", -1, "metadata"),
    row("", -1, "metadata"),
    row("", 5, "image", b""),
    row("wide", -1, "metadata"),
    row("wide", 7, "text", "first"),
    row("wide", 2_000_000_000, "image", JPEG),
]


def rows(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(given), schema=INTERLEAVED_SCHEMA)


def write(path: Path | str, *tables: pa.Table, expected: Sequence[pa.Table] = ()) -> tuple[WrittenSamples, OutputFile]:
    """A tar of ``tables``, and what is expected of it: the same, unless given."""
    written = WrittenSamples()
    with tar_shard(str(path)) as tar:
        for table in tables:
            tar.write(table)
    for table in expected or tables:
        written.add(table)
    return written, OutputFile.of(tar.output)


def test_the_written_samples_are_read_back(tmp_path: Path) -> None:
    written, tar = write(tmp_path / "a.tar", rows(*ROWS[:4]), rows(*ROWS[4:]))
    assert written.compare(tar, None) == {"samples_read_back": 5, "images_read_back": 4, "bytes_read_back": tar.size}


def test_rows_in_any_order(tmp_path: Path) -> None:
    written, tar = write(tmp_path / "a.tar", rows(*ROWS[3::-1], *ROWS[:3:-1]))
    assert written.compare(tar, None)["samples_read_back"] == 5


def test_members_and_keys_that_differ_in_case_alone(tmp_path: Path) -> None:
    members = [("a.1.jpg", JPEG), ("a.1.JPG", JPEG + b"upper"), ("A.json", body(images=[None, "A.1.JPG"]))]
    packed(tmp_path / "in.tar", [("a.json", body()), *members, ("A.1.JPG", JPEG), ("A.1.jpg", JPEG + b"lower")])
    tables = list(read_tar_shard(str(tmp_path / "in.tar"), materialize=True))
    written, tar = write(tmp_path / "out.tar", *tables)
    assert written.compare(tar, None) == {"samples_read_back": 2, "images_read_back": 2, "bytes_read_back": tar.size}
    (table,) = read_tar_shard(tar.uri, materialize=True)
    assert table.drop_columns("source_ref").equals(pa.concat_tables(tables).drop_columns("source_ref"))


def test_an_empty_tar(tmp_path: Path) -> None:
    written, tar = write(tmp_path / "a.tar")
    assert written.compare(tar, None) == {"samples_read_back": 0, "images_read_back": 0, "bytes_read_back": tar.size}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({2: row("page.1", 0, "image", JPEG + b"ZERO")}, "sample 1, 'page%2E1': texts or bytes of images differ"),
        ({1: row("page.1", 0, "text", "grosser")}, "sample 1, 'page%2E1': texts or bytes of images differ"),
        (
            {2: row("page.1", 3, "image", JPEG + b"three"), 3: row("page.1", 4, "image", JPEG + b"zero")},
            "sample 1, 'page%2E1': texts or bytes of images differ, or their order",
        ),
        ({3: row("page.1", 4, "image", JPEG + b"three")}, "sample 1, 'page%2E1': texts or images stand at other posi"),
        ({3: None}, "sample 1, 'page%2E1': 1 images were written and 2 were read"),
        ({7: None}, "sample 3, '%': sample 'empty' was read instead"),
        ({7: row("full", -1, "metadata")}, "sample 3, 'full': sample 'empty' was read instead"),
        ({10: None, 11: None, 12: None}, "it has more samples than were written, the first is 'wide'"),
        ({13: row("more", -1, "metadata")}, "6 samples were written and 5 were read"),
    ],
)
def test_a_different_sample_is_an_error(tmp_path: Path, change: dict[int, dict[str, Any] | None], problem: str) -> None:
    changed = [row for row in ({**dict(enumerate(ROWS)), **change}).values() if row is not None]
    written, tar = write(tmp_path / "a.tar", rows(*ROWS), expected=[rows(*changed)])
    with pytest.raises(ReadBackError) as caught:
        written.compare(tar, None)
    assert f"a.tar: the samples that webdataset reads differ from those written: {problem}" in str(caught.value)
    assert isinstance(caught.value, ShardError)
    assert not (tmp_path / "a.tar").exists()


def packed(path: Path, members: Members) -> OutputFile:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    content = path.read_bytes()
    checksum = xxhash.xxh3_128_hexdigest(content)
    return OutputFile(uri=str(path), size=len(content), checksum=checksum)


def body(**fields: Any) -> bytes:
    return json.dumps({"texts": ["one", None], "images": [None, "a.1.jpg"], **fields}).encode()


GOOD: Members = [("a.json", body()), ("a.1.jpg", JPEG)]


def test_lists_without_gaps_are_no_proof_of_positions(tmp_path: Path) -> None:
    document, *texts = (row("a", at, "text", str(at), content_type="text/plain") for at in (-1, 0, 1))
    document |= {"modality": "metadata", "content_type": "application/json", "text_content": None}
    given, apart = [document, *texts], rows(document, texts[0], texts[1] | {"position": 2})
    written, tar = write(tmp_path / "a.tar", rows(*given), expected=[apart])
    with pytest.raises(ReadBackError, match="sample 1, 'a': texts or images stand at other positions"):
        written.compare(tar, None)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        (GOOD[1:], "sample 1, 'a': it has no JSON"),
        (GOOD[:1], "sample 1, 'a': its JSON names the image 'a.1.jpg', which is missing"),
        ([*GOOD, ("a.1.JPG", JPEG)], "after sample 0: ValueError: a.1.JPG: duplicate file name in tar file 1.jpg"),
        ([("a.json", b"{"), GOOD[1]], "after sample 1: JSONDecodeError: "),
        ([("a.json", body(images=[None])), GOOD[1]], "after sample 1: ValueError: zip()"),
        ([("a.json", b"{}"), GOOD[1]], "after sample 1: KeyError: texts"),
        ([("a.json", b"[]"), GOOD[1]], "after sample 1: TypeError: "),
        ([GOOD[0], ("b.json", body()), GOOD[1]], "sample 1, 'a': its JSON names the image 'a.1.jpg', which is missing"),
    ],
)
def test_malformed_tars_are_errors(tmp_path: Path, members: Members, problem: str) -> None:
    written = WrittenSamples()
    written.add(rows(row("a", 0, "text", "one"), row("a", 1, "image", JPEG)))
    assert written.compare(packed(tmp_path / "good.tar", GOOD), None)["images_read_back"] == 1
    with pytest.raises(ReadBackError) as caught:
        written.compare(packed(tmp_path / "odd.tar", members), None)
    assert f"differ from those written: {problem}" in str(caught.value)
    assert not (tmp_path / "odd.tar").exists()


def _replaced(content: bytes) -> bytes:
    return content[:-1] + b"x"


@pytest.mark.parametrize("damage", [_replaced, lambda content: content[:2048], lambda content: b"no tar" * 1000])
def test_a_tar_with_other_bytes_is_an_error_and_not_deleted(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    written, tar = write(tmp_path / "a.tar", rows(*ROWS))
    other = damage((tmp_path / "a.tar").read_bytes())
    (tmp_path / "a.tar").write_bytes(other)
    with pytest.raises(ReadBackError, match=r"a\.tar does not hold the \d+ bytes that were written to it"):
        written.compare(tar, None)
    assert (tmp_path / "a.tar").read_bytes() == other  # it may be another run's, and good


def test_a_storage_error_is_raised_as_such(tmp_path: Path) -> None:
    written, tar = write(tmp_path / "a.tar", rows(*ROWS))
    with failing("open", "/a.tar", OSError(5, "Input/output error")), pytest.raises(StorageError) as caught:
        written.compare(tar, None)
    assert str(caught.value).startswith(f"cannot read {tar.uri}: Input/output error. ")
    assert (tmp_path / "a.tar").exists()
    (tmp_path / "a.tar").unlink()
    with pytest.raises(StorageError, match=r"cannot read .*a\.tar: No such file"):
        written.compare(tar, None)


def test_in_a_bucket(bucket: str, s3_environment: S3Server) -> None:
    written, tar = write(f"{bucket}/tars/a.tar", rows(*ROWS))
    assert written.compare(tar, {})["samples_read_back"] == 5
    with atomic_output(f"{bucket}/tars/a.tar", {}) as out:
        out.write(b"no tar")
    with pytest.raises(ReadBackError, match="does not hold the"):
        written.compare(tar, {})
    other, tar = write(f"{bucket}/tars/b.tar", rows(*ROWS), expected=[rows(*ROWS[:4])])
    with pytest.raises(ReadBackError, match="it has more samples than were written, the first is '__folder__%2Fb'"):
        other.compare(tar, {})
    assert not s3_environment.fs.exists(f"{bucket}/tars/b.tar")


@pytest.mark.system
def test_memory_does_not_follow_the_tar(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from interleaved_assets_tests.pipeline.stages.test_read_back import JPEG, row, rows\n"
        "from interleaved_assets.io.tar.writer import tar_shard\n"
        "from interleaved_assets.pipeline.stages.read_back import WrittenSamples\n"
        "from interleaved_assets.pipeline.run.record import OutputFile\n"
        "written = WrittenSamples()\n"
        "with tar_shard(sys.argv[1]) as tar:\n"
        "    for n in range(24):\n"
        "        table = rows(row(f'{n}', 0, 'image', JPEG + bytes([n]) * 5_000_000))\n"
        "        tar.write(table)\n"
        "        written.add(table)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "written.compare(OutputFile.of(tar.output), None)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.tar")]
    # MiB, of a tar of 120 MB
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 60
