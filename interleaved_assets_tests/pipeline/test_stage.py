"""When a stage does its work and when it does not, with a stage that only counts its calls."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.record import RAW_SHARDS, OutputFile, Record, ShardPaths, read_record
from interleaved_assets.pipeline.stage import Shard, Stage, Work, take_through
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import project


@dataclass
class Copy:
    """Copies the raw shard, or the output of the stage before it."""

    name: str
    source: str = RAW_SHARDS
    version: int = 1
    calls: list[str] = field(default_factory=list)
    disturb: Path | None = None

    def __call__(self, shard: Shard) -> Work:
        self.calls.append(shard.key)
        uri = shard.raw.uri if shard.raw else shard.paths.output(self.source)
        with open_input(uri, shard.options) as file:
            content = file.read()
        if self.disturb is not None:
            self.disturb.write_bytes(b"something else")
        if content == b"bad":
            raise ShardError(f"{uri} is bad")
        with atomic_output(shard.paths.output(self.name), shard.options) as out:
            out.write(content)
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


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = project(tmp_path)
    (tmp_path / "raw" / "a.tar").write_bytes(b"first")
    return settings


def record_of(settings: Settings, stage: str) -> Record | None:
    return read_record(ShardPaths(output_root=settings.storage.output_root, key="a").record(stage), {})


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


def test_what_follows_goes_by_the_content_of_its_input(settings: Settings, tmp_path: Path) -> None:
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


def test_a_stage_that_fails_leaves_no_record_to_vouch_for_its_output(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one")
    take_through(copy.stage, "a", settings)
    (tmp_path / "raw" / "a.tar").write_bytes(b"bad")
    with pytest.raises(ShardError, match="is bad"):
        take_through(copy.stage, "a", settings)
    assert record_of(settings, "one") is None


def test_a_shard_that_changes_while_it_is_read_is_not_recorded(settings: Settings, tmp_path: Path) -> None:
    copy = Copy("one", disturb=tmp_path / "raw" / "a.tar")
    with pytest.raises(ShardError, match=r"shard a: .*a\.tar changed while it was read"):
        take_through(copy.stage, "a", settings)
    assert record_of(settings, "one") is None


def test_a_vanished_shard_leaves_its_output_alone(settings: Settings, tmp_path: Path) -> None:
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
