from collections.abc import Iterator, Sequence

import dagster as dg
import pytest

from interleaved_assets.defs import latest
from interleaved_assets.defs.latest import event_type, latest_ids, materialized_in_run, observations
from interleaved_assets.defs.metadata import DATA_VERSION
from interleaved_assets.defs.partitions import SHARDS, shards

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
def test_queries_for_a_few_shards_and_for_too_many_to_name_give_the_same(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    monkeypatch.setattr(latest, "_NAMED", named)
    assert event_type("raw_shards") is OBSERVED
    observe(instance, "abcd", "1")
    first = latest_ids(instance, "raw_shards", OBSERVED, "abcd")
    assert sorted(first) == ["a", "b", "c", "d"]
    observe(instance, "ab", "2")
    last = latest_ids(instance, "raw_shards", OBSERVED, ["a", "b", "c", "e"])
    assert last.keys() == {"a", "b", "c"}
    assert last["a"] > max(first.values()) >= last["c"] == first["c"]
    assert latest_ids(instance, "raw_shards", OBSERVED, []) == {}
    found = [record.storage_id for record in observations(instance, "raw_shards", keys=["a", "c"])]
    assert sorted(found) == sorted([first["a"], last["a"], first["c"]])
    assert found.index(last["a"]) < found.index(first["a"])


def test_events_are_fetched_some_at_a_time(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_LIMIT_GET_EVENT_RECORDS", "2")
    monkeypatch.setattr(latest, "_FETCHED", 2)
    observe(instance, "abcde", "1")
    ids = latest_ids(instance, "raw_shards", OBSERVED, "abcd")
    found = list(observations(instance, "raw_shards", ids=list(ids.values())))
    assert {record.partition_key: record.storage_id for record in found} == ids
    found = list(observations(instance, "raw_shards", keys=list("abcde")))
    assert [record.partition_key for record in found] == list("edcba")


def test_materializations_of_a_run_exclude_those_of_others(instance: dg.DagsterInstance) -> None:
    @dg.asset(partitions_def=shards)
    def made() -> None: ...

    instance.add_dynamic_partitions(SHARDS, list("ab"))
    first, second = (dg.materialize([made], instance=instance, partition_key=key).dagster_run for key in "ab")
    assert materialized_in_run(instance, "made", ["a", "b"], first) == {"a"}
    assert materialized_in_run(instance, "made", ["a", "b"], second) == {"b"}
    assert materialized_in_run(instance, "made", [], second) == set()


def test_materializations_logged_by_a_clock_that_is_behind_count(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(partitions_def=shards)
    def made() -> None: ...

    instance.add_dynamic_partitions(SHARDS, ["a"])
    run = dg.materialize([made], instance=instance, partition_key="a").dagster_run
    record = instance.get_run_record_by_id(run.run_id)
    assert record is not None
    assert record.start_time is not None
    late = record._replace(start_time=record.start_time + 600)
    monkeypatch.setattr(instance, "get_run_record_by_id", lambda _: late)
    assert materialized_in_run(instance, "made", ["a"], run) == {"a"}
