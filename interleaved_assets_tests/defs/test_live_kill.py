"""Killed in the middle of a backfill over the real daemon: the run, the daemon, the webserver, all of them at once.

What there is in the end is compared, byte for byte, with what an undisturbed run has written to the same place before.
"""

import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stored_records import read_records
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defs.runs import STAGES, files, materialized, run_chain
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.live import LiveDagster, live_dagster, wait_for

pytestmark = pytest.mark.system

KEYS = tuple(f"shard-{number}" for number in range(6))
# with one shard at a time, the first record of a stage means that five are still to come
SETTINGS = "[run]\nparallel_shards = 1\n"
BACKFILL = "dagster/backfill"
_PID = re.compile(r"\(pid: (\d+)\)")
_STAMP = re.compile(rb'"stamp": "modified:[0-9-]+"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with six shards, each of which is in work for long enough to be hit."""
    folder = tmp_path_factory.mktemp("project")
    project(folder, SETTINGS)
    for seed, key in enumerate(KEYS):
        images = [sharp_image(100 * seed + number, 640, 480) for number in range(6)]
        documents = {f"doc-{number}": document("text", image, "more") for number, image in enumerate(images)}
        write_shard(folder / "raw" / f"{key}.tar", documents)
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> dict[str, bytes]:
    """What a run writes that nothing disturbs."""
    settings = project(folder, SETTINGS)
    with DagsterInstance.ephemeral() as instance:
        assert run_chain(instance, settings, KEYS).success
    (folder / "out").rename(folder / "undisturbed")
    return files(folder / "undisturbed")


@pytest.fixture
def live(
    folder: Path, tmp_path: Path, undisturbed: dict[str, bytes], request: pytest.FixtureRequest
) -> Iterator[LiveDagster]:
    """A daemon and a webserver over the project, with nothing written as yet."""
    with live_dagster(
        tmp_path / "home",
        folder / "interleaved.toml",
        monitoring_seconds=5,
        max_runtime_seconds=getattr(request, "param", None),
    ) as running:
        running.add_partitions(KEYS)
        yield running
    (folder / "out").rename(tmp_path / "out")


def done(folder: Path, stage: str) -> int:
    """How many shards have gone through a stage."""
    settings = load_settings(folder / "interleaved.toml")
    return len([key for key in KEYS if stage in read_records(settings.storage.shard(key), stage_dag(settings))])


def at_first(folder: Path, stage: str) -> None:
    """Wait until the first shard has gone through a stage: the others are waiting, or in work."""
    deadline = time.monotonic() + 180
    while not done(folder, stage):
        assert time.monotonic() < deadline, f"no shard has gone through {stage}"
        time.sleep(0.005)


def pid_of(live: LiveDagster, backfill: str) -> int:
    """The process of the backfill's run, once that is under way."""
    with live.instance() as instance:

        def process_id() -> int | None:
            logs = [entry for run in runs_of(instance, backfill) for entry in instance.all_logs(run.run_id)]
            found = (_PID.search(entry.user_message) for entry in logs)
            return next((int(match[1]) for match in found if match), None)

        return int(wait_for(process_id, 120, "the start of the run's process"))


def runs_of(instance: DagsterInstance, backfill: str) -> Sequence[dg.DagsterRun]:
    """Runs that a backfill has launched; a schedule of the project may have launched others."""
    return instance.get_runs(dg.RunsFilter(tags={BACKFILL: backfill}))


def assert_same(folder: Path, undisturbed: dict[str, bytes]) -> None:
    """The same files with the same bytes, apart from the stamps of outputs in records, and no other files."""
    found = files(folder / "out")
    assert sorted(found) == sorted(undisturbed)
    assert [path for path in found if _STAMP.sub(b"", found[path]) != _STAMP.sub(b"", undisturbed[path])] == []


def test_a_run_that_is_killed(live: LiveDagster, folder: Path, undisturbed: dict[str, bytes]) -> None:
    backfill = live.launch(STAGES, KEYS)
    run = pid_of(live, backfill)  # now: to ask for it takes as long as the other shards do
    at_first(folder, "image_scores")
    os.kill(run, signal.SIGKILL)
    assert live.backfill_ended(backfill, 120) in ("COMPLETED_FAILED", "FAILED")
    assert 0 < done(folder, "image_scores") < len(KEYS)
    before = {path: path.stat().st_mtime_ns for path in (folder / "out" / "normalized").glob("*")}
    with live.instance() as instance:
        assert materialized(instance, "normalized") == set(KEYS)
        assert materialized(instance, "final_tars") == set()
    assert live.backfill_ended(live.launch(STAGES, KEYS), 240) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was done is not done again
    with live.instance() as instance:
        assert all(materialized(instance, asset) == set(KEYS) for asset in STAGES)


def test_a_daemon_and_a_webserver_that_are_killed(
    live: LiveDagster, folder: Path, undisturbed: dict[str, bytes]
) -> None:
    """The run goes on without them. Started again, the daemon ends the backfill, and the webserver tells of it."""
    backfill = live.launch(STAGES, KEYS)
    live.kill("webserver")
    at_first(folder, "normalized")
    live.kill("daemon")
    live.start_daemon()
    assert live.backfill_ended(backfill, 240) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
    live.start_webserver()
    asked = live.ask(
        "query ($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}",
        id=backfill,
    )
    assert asked == {"partitionBackfillOrError": {"status": "COMPLETED_SUCCESS"}}
    with live.instance() as instance:
        assert len(runs_of(instance, backfill)) == 1


@pytest.mark.parametrize("live", [60], indirect=True)
def test_everything_is_killed_at_once(live: LiveDagster, folder: Path, undisturbed: dict[str, bytes]) -> None:
    """As by a machine that goes down: no process reports the end of the run, and its maximum runtime ends it."""
    backfill = live.launch(STAGES, KEYS)
    at_first(folder, "image_scores")
    for name in ("daemon", "webserver"):
        live.kill_all_of(name)
    assert 0 < done(folder, "image_scores") < len(KEYS)
    live.start_daemon()
    live.start_webserver()
    assert live.backfill_ended(backfill, 120) in ("COMPLETED_FAILED", "FAILED")
    assert live.backfill_ended(live.launch(STAGES, KEYS), 240) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
