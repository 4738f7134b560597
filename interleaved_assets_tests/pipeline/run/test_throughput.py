import re
from pathlib import Path

import pytest

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.run.record import Counts, Record
from interleaved_assets.pipeline.run.stage import DEVICE_WAIT, StageOutcome
from interleaved_assets.pipeline.run.throughput import StepProgress, Throughput, read_throughput, write_throughput
from interleaved_assets_tests.documents import project


def outcome(*, unchanged: bool = False, wait: float = 0.0) -> StageOutcome:
    record = Record(
        stage="image_scores",
        shard="a",
        code_version="1",
        inputs={},
        data_version="1",
        outputs={},
        settings={},
        counts_in=Counts(images=50, image_bytes=2_000_000),
        notes={DEVICE_WAIT: wait},
    )
    return StageOutcome(record, unchanged=unchanged, seconds=1.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_every_thirty_seconds_with_the_time_left(clock: Clock) -> None:
    lines: list[str] = []
    progress = StepProgress("image_scores", 1200, lines.append, clock)
    clock.now += 29
    progress.tick()
    assert lines == []
    clock.now += 1
    progress.tick()
    assert lines == ["image_scores: 0 of 1,200 shards, no shard is done yet; 0.00 shards/s, 0 images/s, 0.0 MB/s"]
    for number in range(120):
        progress.add(outcome(), f"10.0.0.{number % 2}", 1.5)
    progress.add(None, "10.0.0.1", 1.5)
    clock.now += 30
    progress.tick()
    progress.tick()
    assert lines[1:] == [
        "image_scores: 121 of 1,200 shards, 1 failed, 8.9 min left; 2.02 shards/s, 100 images/s, 4.0 MB/s, "
        "1.5 s in the queue, shards/s by host: 10.0.0.1 1.02, 10.0.0.0 1.00"
    ]
    clock.now += 30
    progress.end()
    assert re.match(r"image_scores: 121 shards in 1\.5 min; ", lines[2])


def test_a_short_step_logs_nothing(clock: Clock) -> None:
    lines: list[str] = []
    progress = StepProgress("filtered", 1, lines.append, clock)
    progress.add(outcome(), "", 0)
    clock.now += 5
    assert progress.end() == Throughput("filtered", 5, shards=1, made=1, images=50, image_bytes=2_000_000)
    assert lines == []


def test_images_of_current_shards_do_not_count(clock: Clock) -> None:
    progress = StepProgress("filtered", 2, print, clock)
    progress.add(outcome(unchanged=True, wait=9), "", 0)
    progress.add(outcome(wait=0.25), "", 0)
    done = progress.end()
    assert (done.shards, done.made, done.images, done.device_wait_seconds) == (2, 1, 50, 0.25)


def test_the_figures_of_a_step_on_two_hosts_can_be_stored(tmp_path: Path, clock: Clock) -> None:
    progress = StepProgress("filtered", 2, print, clock)
    for number in range(3):
        progress.add(outcome(), f"10.0.0.{number % 2}", 0.5)
    done = progress.end()
    write_throughput(done, project(tmp_path).storage)
    assert read_throughput(["filtered"], project(tmp_path).storage) == [done]
    assert done.hosts == {"10.0.0.0": 2, "10.0.0.1": 1}


def test_figures_of_another_version_cost_only_themselves_and_a_refused_write_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = project(tmp_path).storage
    good = Throughput("filtered", 10.0, shards=20)
    write_throughput(good, storage)
    folder = tmp_path / "out/state/throughput"
    for stage, content in {
        "normalized": b'{"stage": "normalized", "shards": "many"}',
        "image_scores": b"",
        "final_tars": b'["cut',
        "image_export": b"[1]",
    }.items():
        (folder / f"{stage}.json").write_bytes(content)
    stages = ["normalized", "image_scores", "filtered", "final_tars", "image_export"]
    assert read_throughput(stages, storage) == [good]
    assert caplog.text.count("has no figures of a step, and is left out") == 4
    (folder / "clip_scores.json").mkdir()
    with pytest.raises(StorageError, match="cannot write"):
        write_throughput(Throughput("clip_scores", 1.0), storage)


def test_figures_are_kept_for_the_report(tmp_path: Path) -> None:
    storage = project(tmp_path).storage
    assert read_throughput(["normalized"], storage) == []
    first = Throughput("normalized", 10.0, shards=20, made=20, hosts={"10.0.0.1": 20}, queue_seconds=40)
    write_throughput(Throughput("normalized", 1.0, shards=99), storage)
    write_throughput(first, storage)
    assert read_throughput(["normalized", "filtered"], storage) == [first]
    assert (first.rate(first.shards), first.mean_queue_seconds) == (2.0, 2.0)
