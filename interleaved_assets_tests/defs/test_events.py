"""How many bytes a shard's events take: on documents with many texts, images and fields."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._serdes import serialize_value

from interleaved_assets.defs.demo import register_all
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import STAGES, instance_on_disk, run_chain
from interleaved_assets_tests.defs.test_checks import shown
from interleaved_assets_tests.documents import blurred_image, document, project, sharp_image, write_shard

PICTURES, EVENTS, EVALUATION, UNCHANGED = 12_000, 28_500, 2_900, 18_000
"""Most bytes of a shard's pictures, of all else that is logged of it, of one evaluation of a check, and of all
but the pictures of an unchanged shard."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with instance_on_disk(tmp_path / "home") as instance:
        yield instance


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A shard of 40 documents like those of MINT-1T, 80 images, half of them dropped for several reasons."""
    settings = project(
        tmp_path,
        "[selection]\nmin_sharpness = 100\nmax_aspect_ratio = 1.5\nmin_short_side = 30\nmax_ratio = 0.5\n",
    )
    documents = {}
    for number in range(40):
        images = (sharp_image(number, width=40 + number, height=30), blurred_image(number))
        fields = {name: f"{name} of {number}" for name in ("url", "pdf_name", "language", "licence", "bff_contained")}
        documents[f"crawl-2026/segment-7/document-{number:05}"] = document(
            *("some words of a text " * 5, images[0], "more words", images[1]), **fields, page=number, previous=[1, 2]
        )
    write_shard(tmp_path / "raw/crawl-2026/segment-7/shard-00001.tar", documents)
    return settings


def logged(instance: dg.DagsterInstance) -> list[tuple[str, str, int]]:
    """Type, asset and bytes of each event of the last run that is about the shard and that Dagster does not plan."""
    [run] = instance.get_runs(limit=1)
    found = []
    for entry in instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event and event.event_type_value in ("ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION"):
            if event.asset_key is None and event.asset_check_evaluation_data.partition is None:
                continue  # of all shards together
            key = event.asset_key or event.asset_check_evaluation_data.asset_key
            found.append((event.event_type_value, key.path[-1], len(serialize_value(entry))))
    return found


def test_events_of_a_shard_stay_within_their_bytes(settings: Settings, instance: dg.DagsterInstance) -> None:
    keys = register_all(instance, settings.storage)
    assert run_chain(instance, settings, keys).success
    new = logged(instance)
    metadata = instance.fetch_materializations(dg.AssetKey("filtered"), limit=1).records[0].asset_materialization
    assert metadata is not None
    pictures = str(metadata.metadata["pictures"].value)
    assert 3_000 < len(pictures.encode()) <= PICTURES
    assert sum(size for _, _, size in new) <= EVENTS + len(pictures.encode())
    assert Counter(asset for kind, asset, _ in new if kind == "ASSET_MATERIALIZATION") == dict.fromkeys(STAGES, 1)
    evaluations = Counter(asset for kind, asset, _ in new if kind == "ASSET_CHECK_EVALUATION")
    assert evaluations == {**dict.fromkeys(STAGES, 1), "filtered": 2}
    assert max(size for kind, _, size in new if kind == "ASSET_CHECK_EVALUATION") <= EVALUATION
    assert run_chain(instance, settings, keys).success
    again = logged(instance)
    assert Counter((kind, asset) for kind, asset, _ in again) == {("ASSET_MATERIALIZATION", name): 1 for name in STAGES}
    assert sum(size for _, _, size in again) <= UNCHANGED + len(pictures.encode())
    for check in ("materialization_errors", "keep_rate_within_bounds"):
        assert shown(instance, "filtered", check) == {"passed": set(keys)}


def test_a_check_that_fails_for_an_unchanged_shard_is_logged(settings: Settings, instance: dg.DagsterInstance) -> None:
    keys = register_all(instance, settings.storage)
    assert run_chain(instance, settings, keys).success
    bounds = {"min_keep_rate": 0.99}
    strict = settings.model_copy(update={"checks": settings.checks.model_copy(update=bounds)})
    assert run_chain(instance, strict, keys).success
    evaluations = [(asset, size) for kind, asset, size in logged(instance) if kind == "ASSET_CHECK_EVALUATION"]
    assert [asset for asset, _ in evaluations] == ["filtered"]
    assert shown(instance, "filtered", "keep_rate_within_bounds") == {"failed": set(keys)}
    assert shown(instance, "filtered", "materialization_errors") == {"passed": set(keys)}
