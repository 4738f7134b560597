"""A run that is killed at every moment at which storage changes: the next run ends as if no run had been killed."""

import hashlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import xxhash

from interleaved_assets.io.storage.atomic import AtomicOutput
from interleaved_assets.io.storage.temporary import TemporaryFile
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.forked import start_forked
from interleaved_assets_tests.pipeline.runs import valid_record
from interleaved_assets_tests.projects import take_all

KEY = "cc/a"


def take_through_all(settings: Settings) -> None:
    take_all(settings, KEY)


def watch_storage(reached: Callable[[str], None], replace: Callable[[type, str, Callable[..., object]], None]) -> None:
    """Call ``reached`` at each moment: a temporary file is made, begun, complete, and at its place."""
    make, commit, write = TemporaryFile.__init__, TemporaryFile.commit, AtomicOutput.write

    def watched_make(file: TemporaryFile, target: Path) -> None:
        make(file, target)
        reached(f"{target.name} made")

    def watched_write(output: AtomicOutput, data: bytes) -> int:
        is_first = output.size == 0
        written = write(output, data)
        if is_first:
            output._target.file.flush()
            reached(f"{output.uri} begun")
        return written

    def watched_commit(file: TemporaryFile) -> None:
        file.file.flush()
        reached("complete")
        commit(file)
        reached("in place")

    replace(TemporaryFile, "__init__", watched_make)
    replace(AtomicOutput, "write", watched_write)
    replace(TemporaryFile, "commit", watched_commit)


def be_killed(settings_file: str, moment: int) -> None:
    """Take the shard through all stages, and be killed at this moment. Runs in a process of its own."""
    count = 0

    def reached(what: str) -> None:
        nonlocal count
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_storage(reached, setattr)
    take_through_all(load_settings(settings_file))


def files(folder: Path) -> dict[str, str]:
    """Hash of every file below the folder, by path; of a record, without its seconds and the stamps of its outputs."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(
            re.sub(rb'"stamp": "[^"]*-\d+-\d+"|"seconds": [\d.]+', b"", path.read_bytes())
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def records(settings: Settings) -> Iterator[Record]:
    paths = settings.storage.shard(KEY)
    for name in stage_dag(settings):
        record = valid_record(paths.record(name))
        if record is not None:
            yield record


@pytest.mark.system
@pytest.mark.parametrize(("before", "every"), [("run before", 1), ("never run", 4)])
def test_killed_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, every: int) -> None:
    settings = project(tmp_path)
    out, old = tmp_path / "out", tmp_path / "before"
    old.mkdir()
    if before == "run before":
        good_shard(tmp_path / "raw" / f"{KEY}.tar", seed=1)
        take_through_all(settings)
        out.rename(old)
    good_shard(tmp_path / "raw" / f"{KEY}.tar", seed=7)
    moments: list[str] = []
    with monkeypatch.context() as patches:
        watch_storage(moments.append, patches.setattr)
        take_through_all(settings)
    wanted = files(out)
    outputs = sum(len(record.outputs) for record in records(settings))
    assert len(moments) == 4 * (outputs + len(stage_dag(settings)))  # each stage writes its outputs and a record

    for moment in range(1, len(moments) + 1, every):
        shutil.rmtree(out)
        shutil.copytree(old, out)
        kill_at(moment, tmp_path)
        assert_records_are_true(settings, moments[moment - 1])
        take_through_all(settings)
        assert files(out) == wanted, moments[moment - 1]


def test_killed_again_and_again(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / f"{KEY}.tar", seed=7)
    take_through_all(settings)
    wanted = files(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    for moment in (2, 3, 6, 11, 7, 7, 3, 14, 10, 4):
        kill_at(moment, tmp_path)
        assert_records_are_true(settings, f"moment {moment}")
    assert files(tmp_path / "out") != wanted
    take_through_all(settings)
    assert files(tmp_path / "out") == wanted


def kill_at(moment: int, folder: Path) -> None:
    process = start_forked(be_killed, str(folder / "interleaved.toml"), moment)
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, moment


def assert_records_are_true(settings: Settings, when: str) -> None:
    for record in records(settings):
        for output in record.outputs.values():
            assert xxhash.xxh3_128_hexdigest(Path(output.uri).read_bytes()) == output.checksum, when
