"""Three runs on one shard at once, stopped at each access to storage: a valid record is true at any time.

The runs are those of ``take_through`` on real files. Orders are random ones from fixed seeds; after each step the valid
records are compared with what lies there. The tests at the end change the order of the code and have to fail by it.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

from interleaved_assets.io.storage import atomic_output, open_input
from interleaved_assets.io.storage.stamps import local_stamp
from interleaved_assets.io.storage.temporary import TemporaryFile
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run import attempt, record
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import RAW_SHARDS, OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.pipeline.runs import SteppedRun, pause, valid_record
from interleaved_assets_tests.system_calls import system_calls

WORKS = {"all the same": "111", "one other": "112", "all others": "123", "the same around another": "121"}
"""The code versions of the runs A, B and C."""
READING = {"a reader beside two others": "12r", "a reader beside two that make the same": "22r"}
"""Two runs of the stage, and one of the stage that reads its output."""
STEPS = 24  # more than any run takes
ORDERS = 9


def upstream(version: str) -> Stage:
    """Writes two outputs of the same size, whatever the version."""

    def write(shard: ShardTask) -> Work:
        outputs = {}
        for role, uri in {"rows": shard.paths.output("one"), "ledger": shard.paths.ledger("one")}.items():
            with atomic_output(uri) as out:
                out.write(f"{role} by version {version}".encode())
            outputs[role] = OutputFile.of(out)
        return Work(outputs=outputs)

    return Stage("one", (RAW_SHARDS,), int(version), lambda settings: {}, write)


def copy(shard: ShardTask) -> Work:
    """Reads the rows of the stage before, twice."""
    content = b""
    for _ in range(2):
        pause()
        with open_input(shard.paths.output("one")) as file:
            content += file.read()
    with atomic_output(shard.paths.output("two")) as out:
        out.write(content)
    return Work(outputs={"rows": OutputFile.of(out)})


READER = Stage("two", ("one",), 1, lambda settings: {}, copy)


def stage_of(work: str) -> Stage:
    return READER if work == "r" else upstream(work)


def run_of(stage: Stage, settings: Settings) -> SteppedRun:
    return SteppedRun(lambda: take_through(stage, "a", settings))


def raw_shard(settings: Settings, folder: Path) -> None:
    for key in ("a", "elsewhere"):
        (folder / "raw" / f"{key}.tar").write_bytes(b"raw")
    for version in "123":
        made = take_through(upstream(version), "elsewhere", settings).record
        READ_FROM[made.data_version] = 2 * Path(made.rows_uri).read_bytes()


pytestmark = pytest.mark.project(finish=raw_shard)


@pytest.fixture(autouse=True)
def stop_at_storage(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each run stop before it looks at a file below the output root, reads it, puts it in place or removes it."""
    stat, out = os.stat, settings.storage.output_root

    def see(path: str) -> None:
        if path.startswith(out) and path.endswith((".json", ".parquet")):
            pause()

    def stopped(path: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike):
            see(os.fspath(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stopped)  # which has no event
    with system_calls(lambda _, path: see(path)):
        yield


def assert_valid_records_are_true(settings: Settings, when: str) -> None:
    paths = settings.storage.shard("a")
    for stage in ("one", "two"):
        found = valid_record(paths.record(stage))
        for output in found.outputs.values() if found else ():
            assert xxhash.xxh3_128_hexdigest(Path(output.uri).read_bytes()) == output.checksum, when
        if found is not None and stage == "two":
            content = Path(paths.output("two")).read_bytes()
            assert content == READ_FROM[found.inputs["one"]], when


READ_FROM: dict[str, bytes] = {}
"""By the data version of its input, the bytes that the reading stage writes."""


def go_through(settings: Settings, works: str, seed: int, killed: str = "") -> dict[str, SteppedRun]:
    """Three runs of such works in a random order of their steps, from what version 1 has made before."""
    take_through(upstream("1" if "r" in works else "9"), "a", settings)
    runs = {name: run_of(stage_of(work), settings) for name, work in zip("ABC", works, strict=True)}
    shuffled = random.Random(seed)
    order = list("ABC" * STEPS)
    shuffled.shuffle(order)
    last = shuffled.randrange(1, STEPS)
    for name in order:
        if name == killed and last == 0:
            runs[name].kill()
            continue
        last -= name == killed
        if runs[name].result is not None:
            continue
        runs[name].step()
        assert_valid_records_are_true(settings, f"{works}, seed {seed}")
    return runs


@pytest.mark.parametrize("works", [*WORKS.values(), *READING.values()], ids=[*WORKS, *READING])
def test_a_valid_record_is_true_after_each_step_and_the_next_run_ends_well(settings: Settings, works: str) -> None:
    ends = set()
    for seed in range(ORDERS):
        runs = go_through(settings, works, seed)
        for run in runs.values():
            run.finish()
            ends.add(type(run.result))
        assert ends <= {StageOutcome, ShardError}
        if works == "111":
            assert ends == {StageOutcome}, seed
            assert take_through(upstream("1"), "a", settings).unchanged
        for work in sorted(set(works)):
            take_through(stage_of(work), "a", settings)
            assert take_through(stage_of(work), "a", settings).unchanged
            assert_valid_records_are_true(settings, f"{works}, seed {seed}")
    assert works == "111" or ends == {StageOutcome, ShardError}


@pytest.mark.parametrize("killed", ["A", "B", "C"])
@pytest.mark.parametrize("works", ["112", "12r"])
def test_whichever_is_killed_a_valid_record_is_true_and_the_next_run_ends_well(
    settings: Settings, killed: str, works: str
) -> None:
    for seed in range(ORDERS // 3):
        runs = go_through(settings, works, seed, killed)
        for run in runs.values():
            run.kill()
        assert_valid_records_are_true(settings, f"{works}, seed {seed}")
        for work in sorted(set(works)):
            take_through(stage_of(work), "a", settings)
            assert take_through(stage_of(work), "a", settings).unchanged
            assert_valid_records_are_true(settings, f"{works}, seed {seed}")


def stamp_behind_the_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = TemporaryFile.commit

    def commit_first(file: TemporaryFile) -> str:
        commit(file)
        return local_stamp(file._target.stat())

    stand_in(monkeypatch, TemporaryFile, "commit", commit_first)


def stamp_renewed_without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, record, "_has_content", lambda output, options: True)


def inputs_looked_at_only_behind_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = attempt.Attempt.finish

    def finish_with_present_stamps(job: attempt.Attempt, work: Work) -> StageOutcome:
        job.seen = {uri: attempt.read_stamp(uri) for uri in job.seen}
        return finish(job, work)

    stand_in(monkeypatch, attempt.Attempt, "finish", finish_with_present_stamps)


def inputs_looked_at_only_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, attempt.Attempt, "_check_inputs", lambda job: None)


@pytest.mark.parametrize(
    ("change", "works"),
    [
        (stamp_behind_the_rename, "123"),
        (stamp_renewed_without_comparing, "123"),
        pytest.param(inputs_looked_at_only_behind_the_work, "12r", marks=pytest.mark.system),
        pytest.param(inputs_looked_at_only_before_the_work, "12r", marks=pytest.mark.system),
    ],
)
def test_these_tests_fail_if_the_steps_are_in_another_order(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], works: str
) -> None:
    change(monkeypatch)
    with pytest.raises(AssertionError, match=f"{works}, seed"):
        go_through_many(settings, works, 10 * ORDERS)


def go_through_many(settings: Settings, works: str, seeds: int) -> None:
    for seed in range(seeds):
        for run in go_through(settings, works, seed).values():
            run.finish()
            assert_valid_records_are_true(settings, f"{works}, seed {seed}")
