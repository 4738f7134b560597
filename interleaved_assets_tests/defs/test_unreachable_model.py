"""A checkpoint and a head that cannot be reached: definitions load, and only the step that needs them fails."""

import hashlib
import html
import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
from s3fs import S3FileSystem

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.metadata import version_tags
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.model.errors import InterleavedError, SettingsError, describe
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.failures import read_failures
from interleaved_assets.pipeline.run.many import take_many
from interleaved_assets.pipeline.run.one import take_through, take_together
from interleaved_assets.pipeline.run.record import RAW_SHARDS, Counts, OutputFile
from interleaved_assets.pipeline.run.stage import Work
from interleaved_assets.pipeline.run.stored_records import read_records
from interleaved_assets.pipeline.stages.dag import code_versions, stage_dag
from interleaved_assets.pipeline.status.dataset_status import status_of_raws
from interleaved_assets.pipeline.status.status import CURRENT, CurrentStages
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import replace_model
from interleaved_assets_tests.defs.runs import materialized
from interleaved_assets_tests.documents import good_shard, project, stages_before
from interleaved_assets_tests.ports import free_ports

BEFORE = stages_before("filtered")
MODEL = '[clip]\nenabled = true\ndevice = "cpu"\npretrained = "{}"\n[clip.heads.taste]\npath = "{}"\n'


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Host and port where nothing listens, also for S3."""
    (port,) = free_ports(1)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()  # one that another test made without these credentials
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("unreachable", ["checkpoint", "head"])
def test_definitions_load_and_only_the_step_fails(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch, unreachable: str
) -> None:
    checkpoint = "s3://nowhere/model.pt" if unreachable == "checkpoint" else "openai"
    settings = project(tmp_path, f"[run]\nstorage_tries = 1\n{MODEL.format(checkpoint, f'https://{closed}/head.pth')}")
    good_shard(tmp_path / "raw/a.tar")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("storage was asked while definitions load"))
        job = build_definitions(settings).resolve_implicit_global_asset_job_def()

    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(SHARDS, ["a"])
        result = job.execute_in_process(
            instance=instance,
            partition_key="a",
            asset_selection=[dg.AssetKey(name) for name in (*BEFORE, "clip_scores")],
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
        (failure,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        assert failure.user_failure_data is not None
        lines = str(failure.user_failure_data.description).splitlines()
        assert lines[0] == "clip_scores: 1 of 1 shards failed."
        place = "s3://nowhere/model.pt" if unreachable == "checkpoint" else f"https://{closed}/head.pth"
        assert lines[1].startswith(f"a: cannot look at {place}: ")
        assert len(lines) == 2
        assert [materialized(instance, name) for name in (*BEFORE, "clip_scores")] == [{"a"}] * len(BEFORE) + [set()]
    # due shards are still found
    (found,) = status_of_raws(list_raw_shards(settings.storage), settings, {}).shards()
    assert (found.key, found.status.text) == ("a", "no clip_scores")


def test_weights_that_cannot_be_loaded_are_the_error_of_every_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the stages after it, and in the report: no shard has had an event before the model was loaded."""

    def refuse(*_: object, **__: object) -> None:
        raise SettingsError("clip.pretrained: the weights 'openai' cannot be fetched: no route to host")

    replace_model(monkeypatch, load_scorer=refuse)
    settings = project(tmp_path, '[clip]\nenabled = true\ndevice = "cpu"\npretrained = "openai"\n')
    for name in ("a", "b"):
        good_shard(tmp_path / f"raw/{name}.tar", seed=ord(name))
    definitions = build_definitions(settings)
    quietly = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(SHARDS, ["a", "b"])
        run = definitions.resolve_job_def(BRING_UP_TO_DATE).execute_in_process(
            instance=instance, run_config=quietly, tags={RANGE_START: "a", RANGE_END: "b"}, raise_on_error=False
        )
        (failure,) = [event.step_failure_data for event in run.all_events if event.is_step_failure]
        said = "clip.pretrained: the weights 'openai' cannot be fetched: no route to host"
        found = read_failures(settings.storage, ["clip_scores", "filtered", "final_tars"])
        assert {key: failure.error for key, failure in found["clip_scores"].items()} == {"a": said, "b": said}
        for stage in ("clip_scores", "filtered", "final_tars"):
            shown = instance.fetch_observations(dg.AssetKey(stage), limit=2).records
            assert {record.asset_observation.metadata["error"].value for record in shown} == {said}  # type: ignore[union-attr]
        assert failure.user_failure_data is not None
        assert str(failure.user_failure_data.description).splitlines()[0] == (
            "final_tars: 2 of 2 shards failed (2 at clip_scores)."
        )
        errors = [entry.user_message for entry in instance.all_logs(run.run_id) if entry.level == logging.ERROR]
        assert f"clip_scores, shard a: {said}" in errors
        definitions.resolve_job_def("daily_report").execute_in_process(instance=instance, run_config=quietly)
    page = html.unescape((tmp_path / "out/dataset_report.html").read_text())
    assert page.count(f"clip_scores failed: {said}") == 2  # in the table of the shards
    assert f"clip_scores failed, for example: {said}" in page


def test_the_traceback_of_a_defect_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_model(monkeypatch, load_scorer=lambda *_, **__: 1 / 0)
    settings = project(tmp_path, '[clip]\nenabled = true\ndevice = "cpu"\npretrained = "openai"\n')
    for name in ("a", "b", "c"):
        good_shard(tmp_path / f"raw/{name}.tar")
    stage = stage_dag(settings)["clip_scores"]
    for name in ("a", "b", "c"):
        take_through(stage_dag(settings)["normalized"], name, settings)
    found = {one.key: one.result for one in take_many([stage], "abc", settings, then=describe)}
    assert {key: describe(error) for key, error in found.items() if isinstance(error, BaseException)} == dict.fromkeys(
        "abc", "ZeroDivisionError: division by zero"
    )
    assert [isinstance(error, ZeroDivisionError) for error in found.values()] == [True, False, False]


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A project with a local checkpoint and head, one shard of which has CLIP scores by a model that is made up."""

    def score(shards, settings):  # type: ignore[no-untyped-def]  # in place of the model: writes a file
        for shard in shards:
            path = Path(shard.paths.output("clip_scores"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"scores")
            rows = OutputFile(uri=str(path), size=6, sha256=hashlib.sha256(b"scores").hexdigest())
            yield shard.key, Work(outputs={"rows": rows}, data_version="v", counts_out=Counts(rows=1))

    replace_model(monkeypatch, score_together=score)
    settings = project(tmp_path, MODEL.format("model.pt", "head.pth"))
    (tmp_path / "model.pt").write_bytes(b"weights")
    (tmp_path / "head.pth").write_bytes(b"head")
    good_shard(tmp_path / "raw/a.tar")
    for name in (*BEFORE, "clip_scores"):
        take_through(stage_dag(settings)[name], "a", settings)
    return settings


def status(settings: Settings) -> str:
    records = read_records(settings.storage.shard("a"), stage_dag(settings))
    return next((why.text for why in CurrentStages.of(settings).not_current(records).values()), CURRENT)


@pytest.mark.parametrize(
    ("file", "setting"), [("model.pt", "clip.pretrained"), ("head.pth", "clip.heads.taste")], ids=["model", "head"]
)
def test_changed_weights_make_scores_stale_and_the_same_elsewhere_do_not(
    scored: Settings, tmp_path: Path, file: str, setting: str
) -> None:
    stage = stage_dag(scored)["clip_scores"]
    assert status(scored) == "no filtered"
    assert take_through(stage, "a", scored).unchanged
    versions = code_versions(stage_dag(scored), scored)
    record = read_records(scored.storage.shard("a"), stage_dag(scored))["clip_scores"]
    assert set(record.inputs) == {"normalized", "clip.pretrained", "clip.heads.taste"}

    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("model.pt", "head.pth"):
        (moved / name).write_bytes((tmp_path / name).read_bytes())
    other = project(tmp_path, MODEL.format("elsewhere/model.pt", "elsewhere/head.pth"))
    assert status(other) == "no filtered"
    assert take_through(stage_dag(other)["clip_scores"], "a", other).unchanged

    (tmp_path / file).write_bytes(b"changed")
    assert status(scored) == f"clip_scores stale: the file of {setting} changed"
    assert code_versions(stage_dag(scored), scored) == versions  # what Dagster knows when it loads
    assert not take_through(stage, "a", scored).unchanged
    assert status(scored) == "no filtered"

    (tmp_path / file).unlink()
    ((_, outcome),) = take_together(stage, ["a"], scored)
    assert isinstance(outcome, InterleavedError)
    assert str(outcome).startswith(f"{setting}: cannot read {tmp_path / file}: No such file or directory.")
    assert status(scored) == "no filtered"  # not known to be stale


def test_weights_that_change_while_they_are_in_use_are_not_recorded(
    scored: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt").write_bytes(b"changed")
    score = stage_dag(scored)["clip_scores"].together

    def change(shards, settings):  # type: ignore[no-untyped-def]
        for key, work in score(shards, settings):
            (tmp_path / "model.pt").write_bytes(b"changed again")
            yield key, work

    replace_model(monkeypatch, score_together=change)
    ((_, outcome),) = take_together(stage_dag(scored)["clip_scores"], ["a"], scored)
    assert isinstance(outcome, InterleavedError)
    assert "changed while it was in use" in str(outcome)
    assert "clip_scores" not in read_records(scored.storage.shard("a"), stage_dag(scored))


def test_files_are_no_inputs_of_the_asset(scored: Settings) -> None:
    """Dagster marks an asset stale where its tags have an input that it does not know."""
    record = read_records(scored.storage.shard("a"), stage_dag(scored))["clip_scores"]
    tags: Mapping[str, str] = version_tags(record, "1", {})
    named = {tag.rpartition("/")[2] for tag in tags if tag.startswith("dagster/input_")}
    assert named == {"normalized"}
    raw = version_tags(read_records(scored.storage.shard("a"), stage_dag(scored))["normalized"], "1", {})
    assert f"dagster/input_data_version/{RAW_SHARDS}" in raw
