"""What stands in the place of a record: a record, a claim, or nothing; and what a record says of its outputs."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
import s3fs

from interleaved_assets.io.storage import atomic_output
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.record import (
    Claim,
    Counts,
    OutputFile,
    Record,
    ShardPaths,
    is_there,
    read_record,
    read_state,
    remove_record,
    write_record,
)
from interleaved_assets_tests.s3 import S3Server

BEGAN = datetime(2024, 5, 17, 8, 30, tzinfo=UTC)


def a_record(output: OutputFile | None = None) -> Record:
    return Record(
        stage="one",
        shard="a",
        code_version="1-0123",
        inputs={"raw_shards": "sha256:1"},
        data_version="v1",
        outputs={} if output is None else {"rows": output},
        settings={"min_sharpness": 1.5},
        counts_in=Counts(rows=3, samples=1),
        dropped={"sharpness_below": 2},
    )


def a_claim(run: str = "run 1") -> Claim:
    return Claim(
        stage="one", shard="a", claimed_by=run, began=BEGAN, code_version="1-0123", inputs={"raw_shards": "sha256:1"}
    )


def an_output(path: Path, content: bytes) -> OutputFile:
    path.write_bytes(content)
    return OutputFile(uri=str(path), size=len(content), sha256=hashlib.sha256(content).hexdigest())


def test_a_record_is_read_back_and_written_with_the_same_bytes(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    write_record(a_record(), uri, {})
    first = Path(uri).read_bytes()
    found = read_record(uri, {})
    assert found == read_state(uri, {}) == a_record()
    write_record(found, uri, {})
    assert Path(uri).read_bytes() == first


def test_a_claim_vouches_for_nothing_and_can_be_told(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    write_record(a_claim(), uri, {})
    assert read_record(uri, {}) is None
    found = read_state(uri, {})
    assert found == a_claim()
    assert isinstance(found, Claim)
    assert (found.claimed_by, found.began) == ("run 1", BEGAN)


def test_a_claim_of_before_there_were_lines_of_them_follows_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(a_claim().model_dump_json(exclude={"follows"}))
    assert read_state(str(tmp_path / "a.json"), {}) == a_claim()


def test_a_record_in_a_bucket_takes_one_request(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = f"{bucket}/records/one/a.json", s3_server.storage_options
    requests: list[str] = []
    call = s3fs.S3FileSystem._call_s3

    async def counted(fs: s3fs.S3FileSystem, method: str, *arguments: object, **named: object) -> object:
        requests.append(method)
        return await call(fs, method, *arguments, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    assert read_state(uri, options) is None
    write_record(a_record(), uri, options)
    requests.clear()
    assert read_record(uri, options) == a_record()
    assert requests == ["get_object"]
    write_record(a_claim(), uri, options)
    assert read_state(uri, options) == a_claim()  # no cache gives the record that was there before
    remove_record(uri, options)
    assert read_state(uri, options) is None


def test_nothing_is_neither(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    assert read_state(uri, {}) is read_record(uri, {}) is None
    remove_record(uri, {})  # another run was faster
    write_record(a_claim(), uri, {})
    remove_record(uri, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\0\0\0"])
def test_a_file_that_a_power_failure_left_without_content_records_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert read_state(str(tmp_path / "a.json"), {}) is None


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"stage": "one"', b'{"claimed_by": "run 1"}', b"\xff\x00"])
@pytest.mark.parametrize("read", [read_state, read_record])
def test_what_is_neither_record_nor_claim_is_named(tmp_path: Path, content: bytes, read) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ShardError, match=r"/a\.json is not a stage record: .*Delete it to redo the stage"):
        read(str(tmp_path / "a.json"), {})


def test_an_output_is_there_by_its_size(tmp_path: Path) -> None:
    output = an_output(tmp_path / "a.bin", b"first")
    assert is_there(output, {})
    (tmp_path / "a.bin").write_bytes(b"half")
    assert not is_there(output, {})
    (tmp_path / "a.bin").unlink()
    assert not is_there(output, {})


def test_the_facts_of_a_file_that_was_not_committed_are_refused(tmp_path: Path) -> None:
    with atomic_output(str(tmp_path / "a.bin")) as out:
        out.write(b"1")
        with pytest.raises(ValueError, match=r"a\.bin was not committed"):
            OutputFile.of(out)
    assert OutputFile.of(out) == OutputFile(
        uri=str(tmp_path / "a.bin"), size=1, sha256=hashlib.sha256(b"1").hexdigest()
    )


def test_places_of_a_shard() -> None:
    paths = ShardPaths(output_root="s3://bucket/out", key="cc/a")
    assert paths.output("normalized") == "s3://bucket/out/normalized/cc/a.parquet"
    assert paths.output("final_tars") == "s3://bucket/out/tars/cc/a.tar"
    assert paths.written_by("final_tars") == (
        "s3://bucket/out/tars/cc/a.tar",
        "s3://bucket/out/dropped/final_tars/cc/a.parquet",
        "s3://bucket/out/records/final_tars/cc/a.json",
    )
    assert "s3://bucket/out/sample_scores/cc/a.parquet" in paths.written_by("filtered")
