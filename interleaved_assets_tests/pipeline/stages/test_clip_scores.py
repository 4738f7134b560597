"""CLIP scores as a stage, with a tiny model: values, errors of one shard of many, and trying again."""

import errno
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("open_clip")
import open_clip

from interleaved_assets.model.errors import (
    SettingsError,
    ShardError,
    StorageUnavailable,
    describe,
)
from interleaved_assets.pipeline.run.one import take_through, take_together
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages import clip_scores as score_clip
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.defects import replace_model
from interleaved_assets_tests.documents import (
    ROWS,
    blurred_image,
    document,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.pipeline.damage import accept_outputs
from interleaved_assets_tests.scoring.clip_tiny import picture, plain_scores, tiny_module, write_tiny
from interleaved_assets_tests.system_calls import failing, files_opened, system_calls

pytestmark = pytest.mark.torch

MODEL = """
[clip]
enabled = true
model = "tiny"
pretrained = "model/tiny.pt"
model_config_path = "model/tiny.json"
device = "cpu"
threads = 1
"""
PRESCREEN = "[clip.prescreen]\nmin_sharpness = 1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    write_tiny(tmp_path / "model")
    return tmp_path


def prepared(folder: Path, shards: dict[str, dict], text: str = "") -> Settings:
    """A project whose shards have image scores."""
    settings = project(folder, MODEL + text)
    for key, documents in shards.items():
        write_shard(folder / "raw" / f"{key}.tar", documents)
        for stage in stages_before("document_scores"):
            take_through(stage_dag(settings)[stage], key, settings)
    return settings


def three(folder: Path, text: str = "") -> Settings:
    return prepared(folder, {key: {key: document(f"text of {key}", picture(at))} for at, key in enumerate("abc")}, text)


def go(settings: Settings, keys: Iterable[str] = "abc") -> dict[str, StageOutcome | Exception]:
    return dict(take_together(stage_dag(settings)["clip_scores"], keys, settings))


def paths(settings: Settings, key: str) -> ShardPaths:
    return settings.storage.shard(key)


def state(settings: Settings, key: str) -> Record | None:
    return read_record(paths(settings, key).record("clip_scores"), {})


def test_scores_and_their_record(folder: Path) -> None:
    settings = prepared(
        folder, {"a": {"one": document("a red square", picture(1), "two circles"), "two": document(picture(2))}}
    )
    record = take_through(stage_dag(settings)["clip_scores"], "a", settings).record
    scores = pq.read_table(record.outputs["rows"].uri)
    wanted = plain_scores(tiny_module(), picture(1), ["a red square", "two circles"])
    best = max(range(2), key=wanted.__getitem__)
    assert scores.select(["sample_id", "position"]).to_pylist() == [
        {"sample_id": "one", "position": 1},
        {"sample_id": "two", "position": 0},
    ]
    assert scores["clip_score"].to_pylist() == [pytest.approx(wanted[best], abs=1e-5), None]
    assert scores["clip_text_position"].to_pylist() == [[0, 2][best], None]
    assert scores["clip_error"][0].as_py() is None
    assert scores["clip_error"][1].as_py().startswith("no_text: ")
    assert record.errors == {}
    assert record.counted["no_text"] == 1
    assert (record.counts_in.images, record.counts_out.rows) == (2, 2)
    assert {name: record.notes[name] for name in ("device", "model", "precision")} == {
        "device": "cpu",
        "model": "tiny/tiny.pt",
        "precision": "fp32",
    }
    assert take_through(stage_dag(settings)["clip_scores"], "a", settings).unchanged


def test_scores_of_another_release_of_the_model_s_packages_are_computed_again(folder: Path) -> None:
    settings = prepared(folder, {"a": {"one": document("a red square", picture(1))}})
    stage = stage_dag(settings)["clip_scores"]
    record = take_through(stage, "a", settings).record
    assert record.packages == {name: metadata.version(name) for name in ("open_clip_torch", "pillow", "torch")}
    place = Path(paths(settings, "a").record("clip_scores"))
    place.write_text(json.dumps(json.loads(place.read_text()) | {"packages": {"open_clip_torch": "2.32.0"}}))
    again = take_through(stage, "a", settings)
    assert (again.unchanged, again.record.packages) == (False, record.packages)
    assert again.record.data_version == record.data_version  # that of the same inputs and packages
    place.unlink()
    other = take_through(replace(stage, packages=lambda _: ("torch",)), "a", settings)
    assert other.record.data_version != record.data_version


@pytest.mark.parametrize("documents", [{}, {"one": document("only", "texts")}], ids=["no rows", "no images"])
def test_a_shard_without_images_has_an_empty_table(folder: Path, documents: dict) -> None:
    settings = prepared(folder, {"a": documents, "b": {"one": document("text", picture(1))}})
    outcomes = go(settings, "ab")
    tables = {}
    for key, outcome in outcomes.items():
        assert isinstance(outcome, StageOutcome)
        tables[key] = pq.read_table(outcome.record.outputs["rows"].uri)
    assert [tables[key].num_rows for key in "ab"] == [0, 1]
    assert tables["a"].schema == tables["b"].schema


def test_images_that_rows_name_are_scored_as_copied_ones_and_never_others(folder: Path) -> None:
    copied = go(three(folder), "a")["a"]
    file = folder / "interleaved.toml"
    file.write_text(file.read_text().replace('output_root = "out"', 'output_root = "by"\nimage_bytes = "referenced"'))
    settings = load_settings(file)
    for stage in stages_before("document_scores"):
        take_through(stage_dag(settings)[stage], "a", settings)
    referenced = go(settings, "a")["a"]
    assert isinstance(copied, StageOutcome)
    assert isinstance(referenced, StageOutcome)
    tables = [pq.read_table(outcome.record.outputs["rows"].uri) for outcome in (copied, referenced)]
    assert tables[0].equals(tables[1])
    write_shard(folder / "raw/a.tar", {"a": document("text of a", picture(5))})
    Path(paths(settings, "a").record("clip_scores")).unlink()
    assert "is not the raw shard that normalized was made from" in str(go(settings, "a")["a"])


def test_the_data_version_is_a_hash_of_the_inputs_and_not_of_the_bytes(folder: Path) -> None:
    settings = three(folder)
    first = go(settings)["a"]
    assert isinstance(first, StageOutcome)
    Path(paths(settings, "a").record("clip_scores")).unlink()
    (again,) = go(project(folder, MODEL + "batch_size = 1\n"), "a").values()
    assert isinstance(again, StageOutcome)
    assert not again.unchanged
    assert again.record.data_version == first.record.data_version
    (other,) = go(project(folder, MODEL + 'long_text = "window"\n'), "a").values()
    assert isinstance(other, StageOutcome)
    assert other.record.data_version != first.record.data_version


def test_with_a_prescreen_the_data_version_depends_on_the_image_scores(folder: Path) -> None:
    settings = three(folder, PRESCREEN)
    first = take_through(stage_dag(settings)["clip_scores"], "a", settings).record
    other = project(folder, MODEL + PRESCREEN + "[scoring]\nmax_pixels = 10\n")
    take_through(stage_dag(settings)["image_scores"], "a", other)
    second = take_through(stage_dag(other)["clip_scores"], "a", other).record
    assert second.inputs[ROWS] == first.inputs[ROWS]
    assert second.inputs["image_scores"] != first.inputs["image_scores"]
    assert second.data_version != first.data_version


def test_the_record_of_the_rows_is_read_when_a_run_begins_and_their_stamp_compared_when_it_ends(
    folder: Path,
) -> None:
    settings = three(folder)
    rows = Path(paths(settings, "b").output(ROWS))

    def replace_rows(event: str, path: str) -> None:
        if event == "os.rename" and path.endswith("/clip_scores/b.parquet"):  # the scores are complete
            shutil.copyfile(rows, folder / "rows")
            (folder / "rows").replace(rows)

    with system_calls(replace_rows), files_opened(f"/{ROWS}/b.json") as read:
        (outcome,) = go(settings, "b").values()
    assert len(read) == 1
    assert isinstance(outcome, ShardError)
    assert str(outcome).endswith(f"{ROWS}/b.parquet changed while it was read; materialize it again")


def test_an_image_outside_of_a_bound_is_left_out_by_the_stored_scores(folder: Path) -> None:
    settings = prepared(folder, {"a": {"one": document("text", blurred_image(), sharp_image(1))}}, PRESCREEN)
    record = take_through(stage_dag(settings)["clip_scores"], "a", settings).record
    assert set(record.inputs) == {ROWS, "image_scores", "clip.model_config_path", "clip.pretrained"}
    scores = pq.read_table(record.outputs["rows"].uri)
    assert scores["clip_score"].is_null().to_pylist() == [True, False]
    assert scores["clip_error"][0].as_py() == ("prescreened: sharpness 0 is below clip.prescreen.min_sharpness 1")


@pytest.mark.parametrize("damage", ["damaged", "missing", "another column"])
def test_a_damaged_score_table_fails_only_its_shard(folder: Path, damage: str) -> None:
    settings = three(folder, PRESCREEN)
    table = Path(paths(settings, "b").output("image_scores"))
    if damage == "damaged":
        table.write_bytes(b"PAR1")
    elif damage == "missing":
        table.unlink()
    else:
        pq.write_table(pq.read_table(table).drop_columns(["sharpness"]), table)
    if damage != "missing":
        accept_outputs(settings, "image_scores", "b")
    outcomes = go(settings)
    assert isinstance(outcomes["a"], StageOutcome)
    assert isinstance(outcomes["c"], StageOutcome)
    kind, message = {
        "damaged": (ShardError, "b.parquet is not a sound Parquet file"),
        "missing": (ShardError, "clip_scores needs image_scores, whose outputs are not those that its record names"),
        "another column": (SettingsError, "the image scores have no column 'sharpness'"),
    }[damage]
    assert isinstance(outcomes["b"], kind)
    assert message in str(outcomes["b"])
    assert state(settings, "b") is None


def test_damaged_rows_fail_only_their_shard(folder: Path) -> None:
    settings = three(folder)
    Path(paths(settings, "a").output(ROWS)).write_bytes(b"PAR1")
    accept_outputs(settings, ROWS, "a")
    Path(paths(settings, "c").output(ROWS)).unlink()
    outcomes = go(settings)
    assert isinstance(outcomes["a"], ShardError)
    assert "a.parquet is not a sound Parquet file" in str(outcomes["a"])
    assert isinstance(outcomes["b"], StageOutcome)
    assert isinstance(outcomes["c"], ShardError)
    assert f"clip_scores needs {ROWS}, whose outputs are not those that its record names" in str(outcomes["c"])
    Path(paths(settings, "b").record(ROWS)).unlink()
    (missing,) = go(settings, "b").values()
    assert isinstance(missing, ShardError)
    assert f"clip_scores needs {ROWS}, which has not been materialized for it" in str(missing)


WHERE = ["rows", "cheap scores", "output"]


@pytest.mark.parametrize("where", WHERE)
def test_a_shard_whose_storage_does_not_answer_can_be_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    write_tiny(folder / "model", seed=10 + WHERE.index(where))  # a model that this process has not loaded yet
    settings = three(folder, PRESCREEN)
    loaded: list[str] = []
    create_model = open_clip.create_model

    def create(name: str, **named: object) -> object:
        loaded.append(name)
        return create_model(name, **named)

    monkeypatch.setattr(open_clip, "create_model", create)
    place = {
        "rows": f"/{ROWS}/b.parquet",
        "cheap scores": "/image_scores/b.parquet",
        "output": "/clip_scores/b.parquet",
    }[where]
    with failing("os.rename" if where == "output" else "open", place, OSError(errno.ETIMEDOUT, "timed out")):
        outcomes = go(settings)
    assert isinstance(outcomes["a"], StageOutcome)
    assert isinstance(outcomes["c"], StageOutcome)
    assert isinstance(outcomes["b"], StorageUnavailable)
    assert state(settings, "b") is None
    again = go(settings)
    assert {key: outcome.unchanged for key, outcome in again.items() if isinstance(outcome, StageOutcome)} == {
        "a": True,
        "b": False,
        "c": True,
    }
    assert len(loaded) == 1  # and not once more for the second try


def test_after_the_storage_stops_answering_all_unfinished_shards_can_be_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = three(folder)

    def fail(*arguments: object, **named: object) -> Iterator[tuple[str, pa.Table]]:
        scored = score_shards(*arguments, **named)  # type: ignore[arg-type]
        yield next(scored)
        scored.close()
        raise StorageUnavailable("cannot read a shard: timed out")

    score_shards = score_clip.score_shards
    with monkeypatch.context() as patches:
        replace_model(patches, score_shards=fail)
        outcomes = go(settings)
    assert isinstance(outcomes["a"], StageOutcome)
    assert isinstance(outcomes["b"], StorageUnavailable)
    assert isinstance(outcomes["c"], StorageUnavailable)
    assert all(isinstance(outcome, StageOutcome) for outcome in go(settings).values())


def test_a_failing_device_is_the_error_of_every_shard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = three(folder)

    def fail(*arguments: object, **named: object) -> Iterator[tuple[str, pa.Table]]:
        raise RuntimeError("CUDA error: the device is gone")

    replace_model(monkeypatch, score_shards=fail)
    found = go(settings)
    assert isinstance(found["a"], RuntimeError)
    assert {key: describe(error) for key, error in found.items() if isinstance(error, Exception)} == dict.fromkeys(
        "abc", "RuntimeError: CUDA error: the device is gone"
    )
    assert not list((folder / "out").rglob("clip_scores/*.parquet"))


def test_a_model_that_cannot_be_loaded_is_the_error_of_every_shard_before_any_begins(folder: Path) -> None:
    settings = three(folder)
    (folder / "model" / "tiny.pt").write_bytes(b"no checkpoint")
    found = go(settings)
    assert isinstance(found["a"], SettingsError)
    assert all(re.match(r"clip: model tiny .* cannot be loaded", str(error)) for error in found.values())
    assert state(settings, "a") is None


def test_only_settings_that_change_a_clip_score_make_it_stale(folder: Path) -> None:
    settings = three(folder)
    go(settings, "a")
    same = project(folder, MODEL + "batch_size = 2\n[selection]\nmin_clip = 0.9\n")
    first, second = stage_dag(settings)["clip_scores"], stage_dag(same)["clip_scores"]
    assert second.code_version(same) == first.code_version(settings)
    assert json.dumps(first.settings(settings)) == json.dumps(second.settings(same))
    write_tiny(folder / "model", seed=1)
    (outcome,) = go(settings, "a").values()
    assert isinstance(outcome, StageOutcome)
    assert not outcome.unchanged
