"""When a stage does its work and when it does not, with a stage that only counts its calls."""

import errno
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError, StorageUnavailable
from interleaved_assets.pipeline.run.one import take_through, take_together
from interleaved_assets.pipeline.run.record import (
    RAW_SHARDS,
    OutputFile,
    Record,
    read_record,
)
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.pipeline.runs import valid_record
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing, files_opened, system_calls


@dataclass
class Copy:
    """Copies the raw shard, or the output of the stage before it."""

    name: str
    source: str = RAW_SHARDS
    version: int = 1
    calls: list[str] = field(default_factory=list)
    disturb: Path | None = None
    meanwhile: Callable[[], object] = lambda: None
    """Called before the output is written."""
    afterwards: Callable[[], object] = lambda: None
    """Called when it is written, and not yet recorded."""

    def __call__(self, shard: ShardTask) -> Work:
        self.calls.append(shard.key)
        uri = shard.raw.uri if shard.raw else shard.paths.output(self.source)
        with open_input(uri, shard.options) as file:
            content = file.read()
        if self.disturb is not None:
            self.disturb.write_bytes(b"something else")
        self.meanwhile()
        if content == b"bad":
            raise ShardError(f"{uri} is bad")
        with atomic_output(shard.paths.output(self.name), shard.options) as out:
            out.write(content)
        self.afterwards()
        return Work(outputs={"rows": OutputFile.of(out)})

    @property
    def stage(self) -> Stage:
        return Stage(
            self.name,
            (self.source,),
            self.version,
            lambda settings: {"sharpness": settings.selection.min_sharpness},
            self,
        )


def raw_shard(settings: Settings, folder: Path) -> None:
    (folder / "raw" / "a.tar").write_bytes(b"first")


pytestmark = pytest.mark.project(finish=raw_shard)


def record_uri(settings: Settings, stage: str) -> str:
    return settings.storage.shard("a").record(stage)


def record_of(settings: Settings, stage: str) -> Record | None:
    return read_record(record_uri(settings, stage), {})


def test_work_is_done_once(settings: Settings) -> None:
    copy = Copy("one")
    first = take_through(copy.stage, "a", settings)
    second = take_through(copy.stage, "a", settings)
    assert copy.calls == ["a"]
    assert (first.unchanged, second.unchanged) == (False, True)
    assert second.record == first.record == record_of(settings, "one")


def test_changed_content_is_redone_and_the_same_content_under_a_new_time_is_not(
    settings: Settings, tmp_path: Path
) -> None:
    copy = Copy("one")
    first = take_through(copy.stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"first")
    assert take_through(copy.stage, "a", settings).unchanged
    (tmp_path / "raw" / "a.tar").write_bytes(b"other")
    changed = take_through(copy.stage, "a", settings)
    assert copy.calls == ["a", "a"]
    assert changed.record.data_version != first.record.data_version


def test_a_changed_setting_or_version_is_redone(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    first = take_through(copy.stage, "a", settings)
    take_through(copy.stage, "a", project(tmp_path, "[selection]\nmin_sharpness = 1\n"))
    take_through(copy.stage, "a", project(tmp_path, "[selection]\nmin_sharpness = 1\nmax_ratio = 2\n"))
    assert len(copy.calls) == 2  # max_ratio is no setting of this stage
    copy.version = 2
    newest = take_through(copy.stage, "a", settings)
    assert len(copy.calls) == 3
    assert newest.record.data_version == first.record.data_version  # the same bytes came out


def test_a_stage_runs_again_only_if_the_content_of_its_input_changed(settings: Settings, tmp_path: Path) -> None:
    one, two = Copy("one"), Copy("two", source="one")
    with pytest.raises(ShardError, match="shard a: two needs one, which has not been materialized for it"):
        take_through(two.stage, "a", settings)
    take_through(one.stage, "a", settings)
    take_through(two.stage, "a", settings)
    one.version = 2  # redone, with the same bytes
    take_through(one.stage, "a", settings)
    assert take_through(two.stage, "a", settings).unchanged
    (tmp_path / "raw" / "a.tar").write_bytes(b"other")
    take_through(one.stage, "a", settings)
    assert not take_through(two.stage, "a", settings).unchanged


def test_a_missing_or_damaged_output_is_made_again(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    take_through(copy.stage, "a", settings)
    output = tmp_path / "out" / "one" / "a.parquet"
    output.write_bytes(b"half")
    assert not take_through(copy.stage, "a", settings).unchanged
    assert output.read_bytes() == b"first"
    output.unlink()
    assert not take_through(copy.stage, "a", settings).unchanged


def test_a_failed_stage_removes_the_record_before(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    take_through(copy.stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"bad")
    with pytest.raises(ShardError, match="is bad"):
        take_through(copy.stage, "a", settings)
    assert read_record(record_uri(settings, "one"), {}) is None


def test_a_shard_that_changes_while_it_is_read_is_not_recorded(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one", disturb=tmp_path / "raw" / "a.tar")
    with pytest.raises(ShardError, match=r"shard a: .*a\.tar changed while it was read"):
        take_through(copy.stage, "a", settings)
    assert record_of(settings, "one") is None


def test_the_output_of_a_vanished_shard_is_kept(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    before = take_through(copy.stage, "a", settings)
    (tmp_path / "raw" / "a.tar").unlink()
    with pytest.raises(StorageError, match="shard 'a' is not below"):
        take_through(copy.stage, "a", settings)
    assert record_of(settings, "one") == before.record


def test_a_broken_record_is_named(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    take_through(copy.stage, "a", settings)
    (tmp_path / "out" / "records" / "one" / "a.json").write_text("{}")
    with pytest.raises(ShardError, match=r"records/one/a\.json is not a stage record"):
        take_through(copy.stage, "a", settings)


def end() -> None:
    raise KeyboardInterrupt


def be_killed(run: Copy, settings: Settings) -> None:
    with pytest.raises(KeyboardInterrupt):
        take_through(run.stage, "a", settings)


def test_a_run_that_is_killed_before_it_writes_leaves_the_record_valid_and_after_it_invalid(settings: Settings) -> None:
    before = take_through(Copy("one").stage, "a", settings).record
    be_killed(Copy("one", version=2, meanwhile=end), settings)
    assert valid_record(record_uri(settings, "one")) == before
    be_killed(Copy("one", version=2, afterwards=end), settings)
    assert valid_record(record_uri(settings, "one")) is None
    assert take_through(Copy("one").stage, "a", settings).unchanged  # the killed run wrote the same bytes
    assert not take_through(Copy("one", version=2).stage, "a", settings).unchanged


def test_an_input_that_is_not_as_recorded_is_refused(settings: Settings, tmp_path: Path) -> None:
    take_through(Copy("one").stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"other")
    be_killed(Copy("one", afterwards=end), settings)
    two = Copy("two", source="one")
    with pytest.raises(ShardError, match=r"two needs one, whose outputs are not those that its record names: .*killed"):
        take_through(two.stage, "a", settings)
    take_through(Copy("one").stage, "a", settings)
    assert not take_through(two.stage, "a", settings).unchanged
    assert two.calls == ["a"]


@pytest.mark.parametrize("change", ["made anew", "replaced", "deleted", "made again", "made anew and again"])
def test_an_input_that_changes_while_it_is_read_is_not_recorded(
    settings: Settings, tmp_path: Path, change: str
) -> None:
    one, output = Copy("one"), tmp_path / "out" / "one" / "a.parquet"
    take_through(one.stage, "a", settings)

    def replace() -> None:
        if change == "deleted":
            output.unlink()
        elif change == "made again":
            # what was read may have been of any run in between
            output.unlink()
            take_through(one.stage, "a", settings)
        else:
            (tmp_path / "raw" / "a.tar").write_bytes(b"other")
            if change == "replaced":
                be_killed(Copy("one", afterwards=end), settings)
            else:
                take_through(one.stage, "a", settings)
            if change == "made anew and again":
                (tmp_path / "raw" / "a.tar").write_bytes(b"first")
                take_through(one.stage, "a", settings)

    two = Copy("two", source="one", meanwhile=replace)
    with pytest.raises(ShardError, match=r"shard a: .*one/a\.parquet changed while it was read; materialize it again"):
        take_through(two.stage, "a", settings)
    assert read_record(record_uri(settings, "two"), {}) is None


IN_BUCKET = pytest.mark.project(in_bucket=True, finish=raw_shard)


@pytest.mark.parametrize(("source", "changed"), [(RAW_SHARDS, "raw/a.tar"), ("one", "out/one/a.parquet")])
@IN_BUCKET
def test_an_input_in_a_bucket_that_changes_while_it_is_read_is_not_recorded(
    settings: Settings, bucket: str, s3_environment: S3Server, source: str, changed: str
) -> None:
    take_through(Copy("one").stage, "a", settings)
    two = Copy("two", source, meanwhile=lambda: s3_environment.fs.pipe(f"{bucket}/{changed}", b"other"))
    with pytest.raises(ShardError, match=r"shard a: .* changed while it was read; materialize it again"):
        take_through(two.stage, "a", settings)
    assert read_record(record_uri(settings, "two"), {}) is None


@IN_BUCKET
def test_an_input_in_a_bucket_that_is_replaced_while_it_is_open_is_not_read_on(
    settings: Settings, bucket: str, s3_environment: S3Server
) -> None:
    s3_environment.fs.pipe(f"{bucket}/raw/a.tar", bytes(2**21))  # a small object is read as a whole when it is opened
    take_through(Copy("one").stage, "a", settings)

    def replace_it(shard: ShardTask) -> Work:
        with open_input(shard.paths.output("one"), shard.options) as file:
            with atomic_output(shard.paths.output("one"), shard.options) as out:
                out.write(b"other")
            file.read()
        raise AssertionError

    with pytest.raises(StorageUnavailable, match=r"one/a\.parquet changed while it was read"):
        take_through(Stage("two", ("one",), 1, lambda settings: {}, replace_it), "a", settings)


def test_a_run_of_the_input_stage_that_fails_or_is_killed_before_it_writes_leaves_the_input_valid(
    settings: Settings, tmp_path: Path
) -> None:
    """The bytes that were read are those that the record named, whether that record still exists or not."""
    first = take_through(Copy("one").stage, "a", settings).record

    def fail() -> None:
        be_killed(Copy("one", version=2, meanwhile=end), settings)
        (tmp_path / "raw" / "a.tar").write_bytes(b"bad")
        with pytest.raises(ShardError, match="is bad"):
            take_through(Copy("one").stage, "a", settings)

    made = take_through(Copy("two", source="one", meanwhile=fail).stage, "a", settings).record
    assert made.inputs == {"one": first.data_version}
    assert (tmp_path / "out" / "two" / "a.parquet").read_bytes() == b"first"
    assert record_of(settings, "one") is None


def copy_tree(settings: Settings, folder: Path) -> Settings:
    """The same project with its outputs copied to another place, without their times."""
    new = project(folder / "new")
    shutil.copytree(folder / "out", folder / "new" / "out", copy_function=shutil.copyfile)
    shutil.copytree(folder / "raw", folder / "new" / "raw", copy_function=shutil.copyfile, dirs_exist_ok=True)
    shutil.rmtree(folder / "out")
    return new


def test_copied_outputs_are_compared_once_and_not_made_again(settings: Settings, tmp_path: Path) -> None:
    one, two = Copy("one"), Copy("two", source="one")
    for stage in (one.stage, two.stage):
        take_through(stage, "a", settings)
    (tmp_path / "new").mkdir()
    copied = copy_tree(settings, tmp_path)
    with files_opened(".parquet") as opened:
        for tries in range(2):
            assert take_through(one.stage, "a", copied).unchanged
            assert take_through(two.stage, "a", copied).unchanged
            assert opened == [f"{copied.storage.output_root}/{name}/a.parquet" for name in ("one", "two")], tries
    assert (one.calls, two.calls) == (["a"], ["a"])
    assert valid_record(record_uri(copied, "two")) is not None


def test_a_stage_that_reads_copied_outputs_renews_their_record(settings: Settings, tmp_path: Path) -> None:
    take_through(Copy("one").stage, "a", settings)
    (tmp_path / "new").mkdir()
    copied = copy_tree(settings, tmp_path)
    assert valid_record(record_uri(copied, "one")) is None
    assert not take_through(Copy("two", source="one").stage, "a", copied).unchanged
    assert valid_record(record_uri(copied, "one")) is not None


@pytest.mark.system
def test_outputs_in_a_copied_bucket_are_not_made_again(tmp_path: Path, s3_environment: S3Server) -> None:
    buckets = [f"s3://{s3_environment.new_bucket()}" for _ in range(2)]
    calls, fs = [], s3_environment.fs
    fs.pipe(f"{buckets[0]}/raw/a.tar", b"x" * (16 * 2**20 + 5))  # written in parts: its ETag is not that of a copy

    def settings_of(bucket: str) -> Settings:
        file = tmp_path / "interleaved.toml"
        file.write_text(f'[storage]\nraw_root = "{bucket}/raw"\noutput_root = "{bucket}/out"\n')
        return load_settings(file)

    def copy(shard: ShardTask) -> Work:
        calls.append(shard.paths.output_root)
        return Copy("one")(shard)

    stage = Stage("one", (RAW_SHARDS,), 1, lambda settings: {}, copy)
    first = take_through(stage, "a", settings_of(buckets[0])).record
    assert take_through(stage, "a", settings_of(buckets[0])).record == first
    for path in fs.find(buckets[0]):
        fs.pipe(path.replace(buckets[0][5:], buckets[1][5:]), fs.cat_file(path))
    now = settings_of(buckets[1])
    assert fs.info(f"{buckets[1]}/raw/a.tar")["ETag"] == fs.info(f"{buckets[0]}/raw/a.tar")["ETag"]
    again = take_through(stage, "a", now)
    assert again.unchanged
    assert again.record.outputs["rows"].stamp != first.outputs["rows"].stamp
    assert again.record.outputs["rows"].uri == f"{buckets[1]}/out/one/a.parquet"
    assert valid_record(record_uri(now, "one")) == again.record
    assert calls == [f"{buckets[0]}/out"]


def test_a_stage_gets_the_records_of_its_inputs(settings: Settings) -> None:
    given: list[object] = []

    def look(shard: ShardTask) -> Work:
        given.append(shard.read)
        return Work(outputs={})

    one = take_through(Copy("one").stage, "a", settings)
    take_through(Stage("two", ("one",), 1, lambda settings: {}, look), "a", settings)
    assert given == [{"one": one.record}]


@contextmanager
def while_the_shard_is_hashed(act: Callable[[], object]) -> Iterator[None]:
    """Do this once, when the raw shard is opened for the first time."""
    left = [act]

    def see(event: str, path: str) -> None:
        if event == "open" and path.endswith("raw/a.tar") and left:
            left.pop()()

    with system_calls(see):
        yield
    assert left == []


def test_a_new_stamp_is_not_written_over_the_record_of_another_run(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    take_through(copy.stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"first")
    with while_the_shard_is_hashed(lambda: take_through(Copy("one", version=2).stage, "a", settings)):
        assert take_through(copy.stage, "a", settings).unchanged
    record = record_of(settings, "one")
    assert record is not None
    assert record.code_version.startswith("2-")


def test_a_record_that_cannot_be_removed_after_a_failure_is_logged_beside_the_error(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    take_through(Copy("one").stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"bad")
    away = failing("os.remove", "/records/one/a.json", OSError(errno.EIO, "the disk is away"))
    with away, pytest.raises(ShardError, match="is bad"):
        take_through(Copy("one").stage, "a", settings)
    assert "shard a: the record of one is not removed: cannot " in caplog.text
    assert "the disk is away" in caplog.text


@dataclass
class Together:
    """Copies many raw shards with one call."""

    fail_before: str = ""
    error: Exception = field(default_factory=lambda: StorageUnavailable("the storage is away"))

    def __call__(
        self, shards: Iterator[ShardTask], settings: Settings
    ) -> Iterator[tuple[str, Work | InterleavedError]]:
        for shard in shards:
            if shard.key == self.fail_before:
                raise self.error
            try:
                yield shard.key, Copy("one")(shard)
            except InterleavedError as error:
                yield shard.key, error

    @property
    def stage(self) -> Stage:
        return Stage("one", (RAW_SHARDS,), 1, lambda settings: {}, together=self)


@pytest.fixture
def several(settings: Settings, tmp_path: Path) -> Settings:
    for name in "bcd":
        (tmp_path / "raw" / f"{name}.tar").write_bytes(b"bad" if name == "b" else name.encode())
    return settings


def as_words(outcomes: Iterator[tuple[str, StageOutcome | Exception]]) -> dict[str, str]:
    return {
        key: ("unchanged" if found.unchanged else "made")
        if isinstance(found, StageOutcome)
        else str(found).split(": ")[-1]
        for key, found in outcomes
    }


def test_many_shards_with_one_call_have_an_outcome_each(several: Settings, tmp_path: Path) -> None:
    stage = Together().stage
    first = as_words(take_together(stage, ["gone", "a", "b", "c"], several))
    assert list(first) == ["gone", "a", "b", "c"]
    assert first["gone"].startswith("it was moved or deleted")
    assert (first["a"], first["c"]) == ("made", "made")
    assert first["b"].endswith("b.tar is bad")
    paths = several.storage.shard("b")
    assert read_record(paths.record("one"), {}) is None
    assert as_words(take_together(stage, ["a", "c", "d"], several)) == {"a": "unchanged", "c": "unchanged", "d": "made"}
    assert take_through(stage, "a", several).unchanged
    with pytest.raises(ShardError, match=r"b\.tar is bad"):
        take_through(stage, "b", several)


def test_storage_unavailable_is_the_outcome_of_all_unfinished_shards(several: Settings) -> None:
    stage = Together(fail_before="c").stage
    outcomes = dict(take_together(stage, ["a", "c", "d"], several))
    assert isinstance(outcomes["a"], StageOutcome)
    assert isinstance(outcomes["c"], StorageUnavailable)
    assert isinstance(outcomes["d"], StorageUnavailable)
    assert as_words(take_together(Together().stage, ["a", "c", "d"], several)) == {
        "a": "unchanged",
        "c": "made",
        "d": "made",
    }


def test_any_other_error_ends_all_and_finished_shards_remain(several: Settings) -> None:
    outcomes = dict(take_together(Together("c", RuntimeError("the device is gone")).stage, ["a", "c", "d"], several))
    assert isinstance(outcomes["a"], StageOutcome)
    assert isinstance(outcomes["c"], RuntimeError)  # with the traceback, which the others do not repeat
    assert str(outcomes["d"]) == "RuntimeError: the device is gone"
    assert record_of(several, "one") is not None
    paths = several.storage.shard("c")
    assert read_record(paths.record("one"), {}) is None


def test_a_shard_that_cannot_be_begun_does_not_stop_the_others(several: Settings) -> None:
    with failing("open", "raw/c.tar", OSError(errno.EIO, "the disk is away")):
        outcomes = as_words(take_together(Together().stage, ["a", "c", "d"], several))
    assert "the disk is away" in outcomes.pop("c")
    assert outcomes == {"a": "made", "d": "made"}


def test_shards_without_a_result_of_the_stage_are_named(several: Settings) -> None:
    def forget(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
        return ((shard.key, Copy("one")(shard)) for shard in shards if shard.key == "a")

    outcomes = dict(take_together(replace(Together().stage, together=forget), ["a", "c", "d"], several))
    for key in "cd":
        assert str(outcomes[key]).startswith("shard c, d: one ended without a result for it; this is an error of the")
    assert record_of(several, "one") is not None
    for key in "cd":
        assert read_record(several.storage.shard(key).record("one"), {}) is None


def test_records_of_many_shards_are_compared_in_parallel(several: Settings) -> None:
    all_there, met = threading.Barrier(3), set()

    def see(event: str, path: str) -> None:
        if event == "open" and path.endswith(".tar") and path not in met:
            met.add(path)
            all_there.wait(timeout=60)  # raises where the others do not come

    with system_calls(see):
        assert as_words(take_together(Together().stage, "acd", several)) == dict.fromkeys("acd", "made")
    assert len(met) == 3


def test_the_code_version_is_computed_once_for_many_shards(several: Settings) -> None:
    calls: list[Settings] = []

    def settings_of(settings: Settings) -> dict[str, object]:
        calls.append(settings)
        return {}

    stage = replace(Together().stage, settings=settings_of)
    assert as_words(take_together(stage, "acd", several)) == dict.fromkeys("acd", "made")
    calls.clear()
    assert as_words(take_together(stage, "acd", several)) == dict.fromkeys("acd", "unchanged")
    assert len(calls) == 1


def test_an_unreadable_model_file_is_the_outcome_of_all_shards(several: Settings) -> None:
    def files_of(settings: Settings) -> dict[str, str]:
        raise StorageUnavailable("the model is away")

    stage = replace(Together().stage, files=files_of)
    assert as_words(take_together(stage, "acd", several)) == dict.fromkeys("acd", "the model is away")


def test_the_seconds_of_shards_taken_together_are_those_since_the_shard_before(several: Settings) -> None:
    def one_after_the_other(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work]]:
        for shard in list(shards):  # all are begun before the first is done
            time.sleep(0.1)
            with atomic_output(shard.paths.output("copied"), shard.options) as out:
                out.write(shard.key.encode())
            yield shard.key, Work(outputs={"rows": OutputFile.of(out)})

    stage = replace(Together().stage, together=one_after_the_other)
    started = time.perf_counter()
    seconds = [found.seconds for _, found in take_together(stage, "acd", several) if isinstance(found, StageOutcome)]
    assert len(seconds) == 3
    assert min(seconds) >= 0.1
    assert sum(seconds) <= time.perf_counter() - started
