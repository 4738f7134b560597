"""The project under a real daemon and webserver, spoken to as the UI does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import AssetKey

from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.live import LiveDagster, live_dagster, wait_for

pytestmark = pytest.mark.system

STAGES = ("normalized", "image_scores", "filtered", "final_tars")
WATCHING = "[watch]\nenabled = true\ninterval_seconds = 5\nquiet_seconds = 0\n"

LAUNCH = """
mutation ($assets: [AssetKeyInput!]!, $partitions: [String!]!) {
  launchPartitionBackfill(backfillParams: {assetSelection: $assets, partitionNames: $partitions}) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
STATUS = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status numPartitions } }
}"""
ADD_PARTITION = """
mutation ($key: String!) {
  addDynamicPartition(
    partitionsDefName: "shards", partitionKey: $key,
    repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "interleaved_assets"}
  ) { __typename ... on PythonError { message } ... on UnauthorizedError { message } }
}"""
STALE = """
query ($asset: [String!]!, $key: String!) {
  assetNodeOrError(assetKey: {path: $asset}) { ... on AssetNode { staleStatus(partition: $key) } }
}"""


@pytest.fixture
def live(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveDagster]:
    project(tmp_path, getattr(request, "param", ""))
    with live_dagster(tmp_path / "home", tmp_path / "interleaved.toml") as running:
        yield running


def materialized(live: LiveDagster, asset: str) -> set[str]:
    with live.instance() as instance:
        return instance.get_materialized_partitions(AssetKey(asset))


def backfill(live: LiveDagster, keys: list[str]) -> str:
    """Launch a backfill of the whole chain and wait for its end; gives its status."""
    answer = live.ask(LAUNCH, assets=[{"path": [name]} for name in STAGES], partitions=keys)["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer

    def ended() -> str | None:
        status = live.ask(STATUS, id=answer["backfillId"])["partitionBackfillOrError"]["status"]
        return status if status not in ("REQUESTED", "CANCELING", "FAILING") else None

    return str(wait_for(ended, 150, f"the end of the backfill (see {live.home}/daemon.log)"))


def test_a_backfill_keeps_the_good_shards_and_shows_the_bad_one(live: LiveDagster, tmp_path: Path) -> None:
    for name in ("a", "c"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    (tmp_path / "raw" / "b.tar").write_bytes(b"this is no tar" * 100)
    for key in "abc":
        live.ask(ADD_PARTITION, key=key)
    assert backfill(live, ["a", "b", "c"]) in ("COMPLETED_FAILED", "FAILED")
    for asset in STAGES:
        assert materialized(live, asset) == {"a", "c"}
    for asset in STAGES:
        answer = live.ask(STALE, asset=[asset], key="a")
        assert answer["assetNodeOrError"]["staleStatus"] == "FRESH"
    untouched = (tmp_path / "out" / "tars" / "a.tar").stat().st_mtime_ns
    good_shard(tmp_path / "raw" / "b.tar", seed=7)
    assert backfill(live, ["a", "b", "c"]) in ("COMPLETED_SUCCESS", "COMPLETED")
    assert materialized(live, "final_tars") == {"a", "b", "c"}
    assert (tmp_path / "out" / "tars" / "a.tar").stat().st_mtime_ns == untouched


@pytest.mark.parametrize("live", [WATCHING], indirect=True)
def test_a_shard_that_lands_goes_through_and_a_replaced_one_again(live: LiveDagster, tmp_path: Path) -> None:
    time.sleep(10)  # eager automation looks at what happens after its first tick
    raw, tars = tmp_path / "raw", tmp_path / "out" / "tars"
    good_shard(raw / "a.tar", seed=1)
    good_shard(raw / "b.tar", seed=2)
    wait_for(lambda: materialized(live, "final_tars") == {"a", "b"}, 240, "the way of two new shards to their tars")
    # A shard replaced while its first run was ending was once reported and not launched: an open defect, most likely of
    # how eager automation sees both in one tick. Here those ticks are let pass.
    time.sleep(45)
    before = {name: (tars / f"{name}.tar").stat().st_mtime_ns for name in "ab"}
    content = (tars / "a.tar").read_bytes()
    good_shard(raw / "a.tar", seed=3)
    wait_for(lambda: (tars / "a.tar").stat().st_mtime_ns != before["a"], 240, "the way of the replaced shard")
    assert (tars / "a.tar").read_bytes() != content
    assert (tars / "b.tar").stat().st_mtime_ns == before["b"]
