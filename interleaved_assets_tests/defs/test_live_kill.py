"""Killed in the middle of a backfill over the real daemon: the run, the daemon, the webserver, all of them at once.

What there is in the end is compared, byte for byte, with what an undisturbed run has written to the same place before.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from interleaved_assets.pipeline.run.stored_records import read_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.protocol.registry import unregister_scorer
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import STAGES, files, materialized, run_chain
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.live import LiveDagster, configure, live_dagster

pytestmark = pytest.mark.system

KEYS = tuple(f"shard-{number}" for number in range(6))
STOPPED = 2
"""Shard whose images are not scored as long as the gate is there: those before it are done, and those after are not."""
GATED = "interleaved_assets_tests.defs.gated_scorer"
GATE, WAITS_AT = "gate", 13  # as in that module, which registers a scorer when it is imported
SETTINGS = f"""
[plugins]
modules = ["{GATED}"]
[scoring]
scorers = ["sharpness", "qr", "gated"]
[run]
parallel_shards = 1
"""
NO_LIMIT = {"dagster/max_runtime": "600"}
"""Tag of a run that takes its time under a maximum runtime that is over at once."""
BACKFILL = "dagster/backfill"
_PID = re.compile(r"\(pid: (\d+)\)")
_STAMP = re.compile(rb'"stamp": "modified:[0-9-]+"|"seconds": [0-9.]+')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with six shards, one of which can be stopped at."""
    folder = tmp_path_factory.mktemp("project")
    for seed, key in enumerate(KEYS):
        width = WAITS_AT if seed == STOPPED else 64
        images = [sharp_image(100 * seed + number, width) for number in range(3)]
        documents = {f"doc-{number}": document("text", image, "more") for number, image in enumerate(images)}
        write_shard(folder / "raw" / f"{key}.tar", documents)
    yield folder
    if sys.modules.pop(GATED, None):
        unregister_scorer("gated")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    return project(folder, SETTINGS)


@pytest.fixture(scope="module")
def undisturbed(folder: Path, settings: Settings) -> dict[str, bytes]:
    """What a run writes that nothing disturbs."""
    with DagsterInstance.ephemeral() as instance:
        assert run_chain(instance, settings, KEYS).success
    (folder / "out").rename(folder / "undisturbed")
    return files(folder / "undisturbed")


@pytest.fixture
def live(folder: Path, tmp_path: Path, undisturbed: dict[str, bytes]) -> Iterator[LiveDagster]:
    """A daemon and a webserver over the project, with nothing written as yet, and the gate closed."""
    (folder / GATE).touch()
    with live_dagster(tmp_path / "home", folder / "interleaved.toml", monitoring_seconds=1) as running:
        running.add_partitions(KEYS)
        yield running
    (folder / "out").rename(tmp_path / "out")


def open_gate(folder: Path) -> None:
    (folder / GATE).unlink()


def done(settings: Settings, stage: str) -> int:
    """How many shards have gone through a stage."""
    return len([key for key in KEYS if stage in read_records(settings.storage.shard(key), stage_dag(settings))])


def stopped(live: LiveDagster, settings: Settings) -> None:
    """Wait until a run has come to the gate: the shards before it have scores, the others are waiting, or in work."""
    live.wait_for(
        lambda: done(settings, "image_scores") == STOPPED,
        f"{STOPPED} shards with scores",
        lambda: f"{done(settings, 'image_scores')} shards; {live.activity()}",
    )


def pid_of(live: LiveDagster, backfill: str) -> int:
    """The process of the backfill's run, once that is under way."""
    with live.instance() as instance:

        def process_id() -> int | None:
            logs = [entry for run in runs_of(instance, backfill) for entry in instance.all_logs(run.run_id)]
            found = (_PID.search(entry.user_message) for entry in logs)
            return next((int(match[1]) for match in found if match), None)

        return int(live.wait_for(process_id, "the start of the run's process"))


def runs_of(instance: DagsterInstance, backfill: str) -> Sequence[dg.DagsterRun]:
    """Runs that a backfill has launched; a schedule of the project may have launched others."""
    return instance.get_runs(dg.RunsFilter(tags={BACKFILL: backfill}))


def assert_same(folder: Path, undisturbed: dict[str, bytes]) -> None:
    """The same files with the same bytes, apart from the stamps of outputs in records, and no other files."""
    found = files(folder / "out")
    assert sorted(found) == sorted(undisturbed)
    assert [path for path in found if _STAMP.sub(b"", found[path]) != _STAMP.sub(b"", undisturbed[path])] == []


def test_a_run_that_is_killed(
    live: LiveDagster, folder: Path, settings: Settings, undisturbed: dict[str, bytes]
) -> None:
    backfill = live.launch(STAGES, KEYS)
    stopped(live, settings)
    os.kill(pid_of(live, backfill), signal.SIGKILL)
    assert live.backfill_ended(backfill) in ("COMPLETED_FAILED", "FAILED")
    assert 0 < done(settings, "image_scores") < len(KEYS)
    before = {path: path.stat().st_mtime_ns for path in (folder / "out" / "normalized").glob("*")}
    with live.instance() as instance:
        assert materialized(instance, "normalized") == set(KEYS)
        assert materialized(instance, "final_tars") == set()
    open_gate(folder)
    assert live.backfill_ended(live.launch(STAGES, KEYS)) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was done is not done again
    with live.instance() as instance:
        assert all(materialized(instance, asset) == set(KEYS) for asset in STAGES)


def test_a_daemon_and_a_webserver_that_are_killed(
    live: LiveDagster, folder: Path, settings: Settings, undisturbed: dict[str, bytes]
) -> None:
    """The run goes on without them. Started again, the daemon ends the backfill, and the webserver tells of it."""
    backfill = live.launch(STAGES, KEYS)
    live.kill("webserver")
    stopped(live, settings)
    live.kill("daemon")
    open_gate(folder)
    live.start_daemon()
    assert live.backfill_ended(backfill) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
    live.start_webserver()
    asked = live.ask(
        "query ($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}",
        id=backfill,
    )
    assert asked == {"partitionBackfillOrError": {"status": "COMPLETED_SUCCESS"}}
    with live.instance() as instance:
        assert len(runs_of(instance, backfill)) == 1


def test_everything_is_killed_at_once(
    live: LiveDagster, folder: Path, settings: Settings, undisturbed: dict[str, bytes]
) -> None:
    """As by a machine that goes down: no process reports the end of the run, and its maximum runtime ends it."""
    backfill = live.launch(STAGES, KEYS)
    stopped(live, settings)
    for name in ("daemon", "webserver"):
        live.kill_all_of(name)
    assert 0 < done(settings, "image_scores") < len(KEYS)
    open_gate(folder)
    configure(live.home, monitoring_seconds=1, max_runtime_seconds=1)
    live.start_daemon()
    live.start_webserver()
    assert live.backfill_ended(backfill) in ("COMPLETED_FAILED", "FAILED")
    assert live.backfill_ended(live.launch(STAGES, KEYS, NO_LIMIT)) == "COMPLETED_SUCCESS"
    assert_same(folder, undisturbed)
