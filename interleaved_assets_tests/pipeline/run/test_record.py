"""Records: reading and writing them, and whether their outputs are still the files that they name."""

import hashlib
import shutil
from pathlib import Path

import pytest
import s3fs
import xxhash

from interleaved_assets.io.storage import atomic_output, read_stamp, remove_file
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.record import (
    Counts,
    OutputFile,
    Record,
    has_its_outputs,
    read_record,
    record_of,
    with_present_stamps,
    write_record,
)
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.pipeline.runs import valid_record
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import files_opened


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


def an_output(path: Path | str, content: bytes) -> OutputFile:
    with atomic_output(str(path)) as out:
        out.write(content)
    return OutputFile.of(out)


def test_a_record_is_read_back_and_written_with_the_same_bytes(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    write_record(a_record(), uri, {})
    first = Path(uri).read_bytes()
    found = read_record(uri, {})
    assert found == valid_record(uri) == a_record()
    write_record(found, uri, {})
    assert Path(uri).read_bytes() == first


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
    assert read_record(uri, options) is None
    write_record(a_record(), uri, options)
    requests.clear()
    assert read_record(uri, options) == a_record()
    assert requests == ["get_object"]
    other = a_record().model_copy(update={"code_version": "2-0123"})
    write_record(other, uri, options)
    assert read_record(uri, options) == other  # no cache gives the record that was there before
    remove_file(uri, options)
    assert read_record(uri, options) is None


def test_reading_or_removing_a_missing_record(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.json")
    assert valid_record(uri) is read_record(uri, {}) is None
    remove_file(uri, {})  # another run was faster
    write_record(a_record(), uri, {})
    remove_file(uri, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\0\0\0"])
def test_a_file_without_content_is_no_record(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert read_record(str(tmp_path / "a.json"), {}) is None


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"stage": "one"', b"\xff\x00"])
def test_a_file_that_is_not_a_record_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ShardError, match=r"/a\.json is not a stage record: .*Delete it to redo the stage"):
        read_record(str(tmp_path / "a.json"), {})


def test_a_record_is_valid_while_every_output_has_the_stamp_that_it_names(tmp_path: Path) -> None:
    outputs = {role: an_output(tmp_path / role, b"first") for role in ("rows", "ledger")}
    record, uri = a_record().model_copy(update={"outputs": outputs}), str(tmp_path / "a.json")
    write_record(record, uri, {})
    assert valid_record(uri) == with_present_stamps(record, {}) == record
    same = an_output(tmp_path / "ledger", b"first")
    assert valid_record(uri) is None
    renewed = with_present_stamps(record, {})
    assert renewed == record.model_copy(update={"outputs": {**outputs, "ledger": same}})
    write_record(renewed, uri, {})
    assert valid_record(uri) == renewed
    for damage in (b"other", b"longer than before"):
        an_output(tmp_path / "ledger", damage)
        assert valid_record(uri) is with_present_stamps(record, {}) is None
        assert read_record(uri, {}) == renewed
    (tmp_path / "ledger").unlink()
    assert valid_record(uri) is with_present_stamps(record, {}) is None


def test_outputs_are_read_only_if_their_stamp_differs(tmp_path: Path) -> None:
    first, second = (an_output(tmp_path / name, b"first") for name in "ab")
    record = a_record().model_copy(update={"outputs": {"rows": first, "ledger": second}})
    with files_opened("/a") as a, files_opened("/b") as b:
        assert with_present_stamps(record, {}) == record
    assert a + b == []
    an_output(tmp_path / "a", b"first")
    with files_opened("/a") as a, files_opened("/b") as b:
        assert with_present_stamps(record, {}) is not None
    assert (a, b) == ([f"{tmp_path}/a"], [])
    an_output(tmp_path / "b", b"of another size")
    with files_opened("/b") as b:
        assert with_present_stamps(record, {}) is None
    assert b == []


def test_a_listed_stamp_saves_a_request_and_an_outdated_one_is_checked(tmp_path: Path) -> None:
    old = an_output(tmp_path / "a", b"first")
    new = an_output(tmp_path / "a", b"other")
    for output, listed, valid in ((old, old, True), (new, old, True), (old, new, False), (old, None, False)):
        record, stamps = a_record(output), {} if listed is None else {output.uri: str(listed.stamp)}
        assert has_its_outputs(record, stamps.get, read_stamp) == valid
        assert has_its_outputs(record, stamps.get) == (listed == output)


def test_a_record_without_stamps_is_valid_while_its_outputs_exist(tmp_path: Path) -> None:
    output, uri = an_output(tmp_path / "a", b"first"), str(tmp_path / "a.json")
    Path(uri).write_text(a_record(output).model_dump_json(exclude={"outputs": {"rows": {"stamp"}}}))
    record = valid_record(uri)
    assert record is not None
    assert record.outputs["rows"].stamp is None
    assert with_present_stamps(record, {}) == a_record(output)
    (tmp_path / "a").unlink()
    assert valid_record(uri) is None


def test_output_uris_are_below_the_output_root_of_the_record(tmp_path: Path) -> None:
    before, now = (ShardPaths(output_root=str(tmp_path / name), key="cc/a") for name in ("before", "now"))
    record = a_record(an_output(Path(before.output("one")), b"first")).model_copy(update={"shard": "cc/a"})
    write_record(record, before.record("one"), {})
    shutil.move(tmp_path / "before", tmp_path / "now")
    found = record_of(now, "one")
    assert found is not None
    assert has_its_outputs(found, read_stamp)  # a move on one filesystem keeps the stamps
    assert found.outputs["rows"].uri == now.output("one")


def test_the_record_of_another_shard_or_stage_is_none_of_this_one(tmp_path: Path) -> None:
    paths = ShardPaths(output_root=str(tmp_path), key="a")
    record = a_record(an_output(paths.output("one"), b"first"))
    write_record(record, paths.record("one"), {})
    assert record_of(paths, "one") == record
    other = ShardPaths(output_root=str(tmp_path), key="b")
    for place in (paths.record("two"), other.record("one")):
        Path(place).parent.mkdir(exist_ok=True)
        shutil.copy(paths.record("one"), place)
    assert record_of(paths, "two") is record_of(other, "one") is None


def test_the_facts_of_a_file_that_was_not_committed_are_refused(tmp_path: Path) -> None:
    with atomic_output(str(tmp_path / "a.bin")) as out:
        out.write(b"1")
        with pytest.raises(ValueError, match=r"a\.bin was not committed"):
            OutputFile.of(out)
    assert OutputFile.of(out) == OutputFile(
        uri=str(tmp_path / "a.bin"),
        size=1,
        stamp=read_stamp(str(tmp_path / "a.bin")),
        checksum=xxhash.xxh3_128_hexdigest(b"1"),
    )


def test_paths_of_a_shard() -> None:
    paths = ShardPaths(output_root="s3://bucket/out", key="cc/a")
    assert paths.output("normalized") == "s3://bucket/out/normalized/cc/a.parquet"
    assert paths.output("final_tars") == "s3://bucket/out/tars/cc/a.tar"
    assert paths.outputs("final_tars") == {
        "rows": "s3://bucket/out/tars/cc/a.tar",
        "ledger": "s3://bucket/out/dropped/final_tars/cc/a.parquet",
    }
    assert paths.outputs("filtered", ["samples"])["samples"] == "s3://bucket/out/sample_scores/cc/a.parquet"
    assert paths.record("final_tars") == "s3://bucket/out/records/final_tars/cc/a.json"


def test_outputs_of_a_record_of_an_older_version_are_compared_by_their_sha256(tmp_path: Path) -> None:
    present = an_output(tmp_path / "a", b"first")
    old = present.model_copy(
        update={"checksum": None, "sha256": hashlib.sha256(b"first").hexdigest(), "stamp": "another"}
    )
    assert old.content.startswith("sha256:")
    renewed = with_present_stamps(a_record(old), {})
    assert renewed is not None
    assert renewed.outputs["rows"].stamp == present.stamp
    changed = old.model_copy(update={"sha256": hashlib.sha256(b"other").hexdigest()})
    assert with_present_stamps(a_record(changed), {}) is None
