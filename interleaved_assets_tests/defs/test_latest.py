from collections.abc import Iterator, Sequence

import dagster as dg
import pytest

from interleaved_assets.defs import latest
from interleaved_assets.defs.latest import data_versions, event_type, latest_ids, observations
from interleaved_assets.defs.metadata import DATA_VERSION

OBSERVED = dg.DagsterEventType.ASSET_OBSERVATION


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def observe(instance: dg.DagsterInstance, keys: Sequence[str], version: str) -> None:
    for key in keys:
        tags = {DATA_VERSION: f"{version}{key}"}
        instance.report_runless_asset_event(dg.AssetObservation("raw_shards", partition=key, tags=tags))


@pytest.mark.parametrize("named", [2, 10_000])
def test_what_is_asked_of_a_few_shards_and_of_too_many_to_name_comes_out_alike(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    monkeypatch.setattr(latest, "_NAMED", named)
    assert event_type("raw_shards") is OBSERVED
    observe(instance, "abcd", "1")
    first = latest_ids(instance, "raw_shards", OBSERVED)
    assert sorted(first) == ["a", "b", "c", "d"]
    observe(instance, "ab", "2")
    until = max(first.values())
    last = latest_ids(instance, "raw_shards", OBSERVED, ["a", "b", "c", "e"])
    assert last.keys() == {"a", "b", "c"}
    assert last["a"] > until >= last["c"] == first["c"]
    assert latest_ids(instance, "raw_shards", OBSERVED, [], after=0) == {}
    assert latest_ids(instance, "raw_shards", OBSERVED, ["a", "c", "d"], after=until) == {"a": last["a"]}
    assert data_versions(instance, "raw_shards", ["a", "b", "c"]) == {"a": "2a", "b": "2b", "c": "1c"}
    assert data_versions(instance, "raw_shards", ["a", "b", "c"], until) == {"a": "1a", "b": "1b", "c": "1c"}
    assert data_versions(instance, "raw_shards", []) == {}


def test_events_are_fetched_some_at_a_time(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_LIMIT_GET_EVENT_RECORDS", "2")
    monkeypatch.setattr(latest, "_FETCHED", 2)
    observe(instance, "abcde", "1")
    ids = latest_ids(instance, "raw_shards", OBSERVED, "abcd")
    found = list(observations(instance, "raw_shards", list(ids.values())))
    assert {record.partition_key: record.storage_id for record in found} == ids
