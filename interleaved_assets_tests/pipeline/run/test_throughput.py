import re
from pathlib import Path
from typing import Any

import pytest

from interleaved_assets.pipeline.run.record import Counts, Record
from interleaved_assets.pipeline.run.stage import DEVICE_WAIT, ShardResult, StageOutcome
from interleaved_assets.pipeline.run.throughput import StepProgress, Throughput, read_throughput
from interleaved_assets.settings import StorageSettings
from interleaved_assets_tests.documents import project


def made(host: str = "", queue_seconds: float = 0.0, *, unchanged: bool = False, wait: float = 0.0) -> Any:
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
    return ShardResult("a", "image_scores", StageOutcome(record, unchanged, 1.0), host, queue_seconds)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(tmp_path: Path) -> StorageSettings:
    return project(tmp_path).storage


def test_a_line_every_thirty_seconds_with_the_time_left(clock: Clock, storage: StorageSettings) -> None:
    lines: list[str] = []
    progress = StepProgress("image_scores", 1200, storage, lines.append, clock=clock)
    clock.now += 29
    progress.tick()
    assert lines == []
    clock.now += 1
    progress.tick()
    assert lines == ["image_scores: 0 of 1,200 shards, no shard is done yet; 0.00 shards/s, 0 images/s, 0.0 MB/s"]
    for number in range(120):
        progress.add(made(f"10.0.0.{number % 2}", 1.5))
    progress.add(ShardResult("b", "image_scores", ValueError("no"), "10.0.0.1", 1.5))
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


def test_a_stage_that_reads_no_image_has_no_speed_in_images() -> None:
    assert Throughput(stage="document_scores", seconds=50, shards=100, images=4000).text == "2.00 shards/s"


def test_a_short_step_logs_nothing_and_few_shards_store_no_figures(clock: Clock, storage: StorageSettings) -> None:
    lines: list[str] = []
    progress = StepProgress("image_scores", 1, storage, lines.append, clock=clock)
    progress.add(made())
    clock.now += 5
    progress.end()
    assert lines == []
    assert read_throughput(["image_scores"], storage) == []


def test_the_figures_of_a_step_are_kept_for_the_report(clock: Clock, storage: StorageSettings) -> None:
    progress = StepProgress("image_scores", 11, storage, print, clock=clock)
    progress.add(made(unchanged=True, wait=9))
    for number in range(10):
        progress.add(made(f"10.0.0.{number % 2}", 0.5, wait=0.25))
    clock.now += 10
    progress.end()
    (done,) = read_throughput(["image_scores", "filtered"], storage)
    assert done == Throughput(
        stage="image_scores",
        seconds=10,
        shards=11,
        made=10,  # images of a shard that was current do not count
        images=500,
        image_bytes=20_000_000,
        queue_seconds=5,
        device_wait_seconds=2.5,
        hosts={"10.0.0.0": 5, "10.0.0.1": 5},
    )
    assert (done.rate(done.shards), done.mean_queue_seconds) == (1.1, 5 / 11)


def test_the_seconds_of_one_of_several_stages_are_those_of_its_shards(clock: Clock, storage: StorageSettings) -> None:
    progress = StepProgress("image_scores", 10, storage, print, at_once=2, clock=clock)
    for _ in range(10):
        progress.add(made())
    clock.now += 999
    progress.end()
    assert read_throughput(["image_scores"], storage)[0].seconds == 5


def test_figures_of_another_version_cost_only_themselves(
    storage: StorageSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "out/state/throughput"
    folder.mkdir(parents=True)
    for stage, content in {
        "normalized": b'{"stage": "normalized", "shards": "many"}',
        "image_scores": b"",
        "filtered": b'{"stage": "filtered", "seconds": 10.0, "shards": 20}',
        "final_tars": b'["cut',
        "image_export": b"[1]",
    }.items():
        (folder / f"{stage}.json").write_bytes(content)
    stages = ["normalized", "image_scores", "filtered", "final_tars", "image_export"]
    assert read_throughput(stages, storage) == [Throughput(stage="filtered", seconds=10, shards=20)]
    assert caplog.text.count("has no figures of a step, and is left out") == 4
