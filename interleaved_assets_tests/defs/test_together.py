"""A stage that takes its shards together, in real runs: CLIP scores, with everything real but the model."""

import errno
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import replace_model
from interleaved_assets_tests.defs.runs import check_result, materialized
from interleaved_assets_tests.defs.test_checks import shown
from interleaved_assets_tests.system_calls import system_calls

CLIP = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\nkeep_embeddings = true\n'
KEYS = ("a", "b", "c")


class Model:
    """Stands in for the model: every image of a shard gets the same score."""

    def __init__(self, settings: Settings) -> None:
        self.schema = clip_schema(settings.clip, 2)
        self.values: dict[str, float | None] = dict.fromkeys(KEYS, 0.5)
        self.loaded = 0
        self.given: list[list[str]] = []
        """Keys of the shards that were scored together, call by call."""

    def load(self, *_: object, **__: object) -> "Model":
        self.loaded += 1
        return self

    def facts(self) -> dict[str, str]:
        return {"device": "none"}

    def score(
        self, shards: Iterable[tuple[str, Iterable[pa.Table]]], *_: object, **__: object
    ) -> Iterator[tuple[str, pa.Table]]:
        self.given.append([])
        for key, tables in shards:
            self.given[-1].append(key)
            parts = [table.filter(pc.equal(table["modality"], "image")) for table in tables]
            images = [row for part in parts for row in part.select(["sample_id", "position"]).to_pylist()]
            score = {"clip_score": self.values[key], "clip_text_position": 0, "embedding": [0.6, 0.8]}
            yield key, pa.Table.from_pylist([{**image, **score} for image in images], schema=self.schema)


pytestmark = pytest.mark.project(CLIP, shards={key: ord(key) for key in KEYS})


@pytest.fixture
def model(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model(settings)
    replace_model(monkeypatch, load_scorer=model.load, score_shards=model.score)
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)  # the pauses between tries
    return model


def run(instance: dg.DagsterInstance, settings: Settings) -> dg.ExecuteInProcessResult:
    keys = register_all(instance, settings.storage)
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey("normalized"), dg.AssetKey("clip_scores")],
        tags={RANGE_START: keys[0], RANGE_END: keys[-1]},
        raise_on_error=False,
    )


def test_checks_of_clip_scores(settings: Settings, model: Model, instance: dg.DagsterInstance) -> None:
    model.values |= {"b": 1.5}
    assert run(instance, settings).success
    assert (model.loaded, model.given) == (1, [list(KEYS)])
    for check in ("rows_without_error", "every_image_scored", "schema_canonical"):
        assert all(check_result(instance, "clip_scores", check, key).passed for key in KEYS)
    assert shown(instance, "clip_scores", "materialization_errors") == {"passed": {"a", "c"}, "failed": {"b"}}
    found = check_result(instance, "clip_scores", "scores_in_range", "b")
    assert found.description == "clip_score: values from 1.5 to 1.5, outside of -1 to 1"
    assert found.figures["embedding_max"] == pytest.approx(1, abs=0.001)


def test_scores_of_another_schema_and_without_reason(
    settings: Settings, model: Model, instance: dg.DagsterInstance
) -> None:
    model.values |= {"b": None}
    model.schema = model.schema.append(pa.field("more", pa.float64()))
    assert run(instance, settings).success
    scored = {key: check_result(instance, "clip_scores", "every_image_scored", key).passed for key in KEYS}
    assert scored == {"a": True, "b": False, "c": True}
    found = check_result(instance, "clip_scores", "every_image_scored", "b")
    assert found.description == "5 rows for 5 images, 0 of them with a reason instead of a score, 5 with neither"
    assert shown(instance, "clip_scores", "materialization_errors") == {"failed": set(KEYS)}
    assert check_result(instance, "clip_scores", "schema_canonical", "a").description == "more is not expected"


AWAY = OSError(errno.ETIMEDOUT, "timed out")
FORBIDDEN = OSError(errno.EACCES, "Permission denied")


@contextmanager
def rows_cannot_be_read(errors: Mapping[str, OSError], times: int) -> Iterator[None]:
    """The rows of these shards, which only clip_scores reads, cannot be opened so many times."""
    tried: Counter[str] = Counter()

    def see(event: str, path: str) -> None:
        key = Path(path).stem
        if event == "open" and path.endswith(f"/out/normalized/{key}.parquet"):
            tried[key] += 1
            if key in errors and tried[key] <= times:
                raise errors[key]

    with system_calls(see):
        yield


def test_shards_whose_storage_did_not_answer_are_tried_again_and_no_others(
    settings: Settings, model: Model, instance: dg.DagsterInstance
) -> None:
    with rows_cannot_be_read({"a": AWAY, "c": AWAY}, times=2):
        assert run(instance, settings).success
    assert model.given == [["a", "b", "c"], ["a", "c"], ["a", "c"]]
    assert materialized(instance, "clip_scores") == set(KEYS)
    events = instance.fetch_materializations(dg.AssetKey("clip_scores"), limit=50).records
    assert sorted(str(event.partition_key) for event in events) == list(KEYS)  # each of them once


def test_tries_come_to_an_end(settings: Settings, model: Model, instance: dg.DagsterInstance) -> None:
    with rows_cannot_be_read({"a": AWAY}, times=99):
        result = run(instance, settings)
    assert not result.success
    assert model.given == [["a", "b", "c"], ["a"], ["a"], ["a"]]  # run.storage_tries
    assert materialized(instance, "clip_scores") == {"b", "c"}
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "1 of 3 shards failed" in str(failure.step_failure_data.user_failure_data.description)


def test_permanent_errors_are_not_retried(settings: Settings, model: Model, instance: dg.DagsterInstance) -> None:
    with rows_cannot_be_read({"a": FORBIDDEN, "b": AWAY}, times=1):
        assert not run(instance, settings).success
    assert model.given == [["a", "b", "c"], ["b"]]
    assert materialized(instance, "clip_scores") == {"b", "c"}
