"""How many requests a shard costs in a bucket, on a real S3 server: each of them takes time, and some cost money."""

import pytest

from interleaved_assets.io.storage import atomic_output
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.many import take_many
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import COMPLETE
from interleaved_assets.settings import Settings
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_requests import counted_requests

KEYS = [f"web/{number}" for number in range(2)]
MOST_UNCHANGED = 8
MOST_OF_ALL_STAGES = 48
MOST_WITHOUT_DOCUMENT_SCORES = 37
MOST_BY_REFERENCE = 54
MOST_NEW = 17


pytestmark = pytest.mark.project(in_bucket=True, shards=dict.fromkeys(KEYS, 1))


def requests_of(settings: Settings, key: str) -> dict[str, list[str]]:
    """The requests of each stage."""
    found = {}
    for name, stage in stage_dag(settings).items():
        with counted_requests() as found[name]:
            take_through(stage, key, settings)
    return found


def test_a_shard_that_is_new_and_then_unchanged(settings: Settings) -> None:
    new = requests_of(settings, KEYS[0])
    assert {name: len(requests) for name, requests in new.items() if len(requests) > MOST_NEW} == {}
    assert sum(map(len, new.values())) <= MOST_OF_ALL_STAGES
    of_others = [
        request
        for name, requests in new.items()
        for request in requests
        if name != "document_scores" and "/document_scores/" not in request
    ]
    assert len(of_others) <= MOST_WITHOUT_DOCUMENT_SCORES
    unchanged = requests_of(settings, KEYS[0])
    assert {name: len(requests) for name, requests in unchanged.items() if len(requests) > MOST_UNCHANGED} == {}
    assert [
        request for requests in unchanged.values() for request in requests if not request.startswith(("GET", "HEAD"))
    ] == []


def test_shards_of_a_step_without_a_stored_failure_remove_none(settings: Settings) -> None:
    with counted_requests() as requests:
        found = list(take_many([stage_dag(settings)["normalized"]], KEYS, settings, then=str, jobs=1))
    assert [type(one.result) for one in found] == [StageOutcome] * len(KEYS)
    assert [request for request in requests if "/out/failures/" in request or request.startswith("DELETE")] == []


def test_a_look_at_all_shards_reads_their_records_and_lists_the_rest(settings: Settings) -> None:
    for key in KEYS:
        requests_of(settings, key)
    with counted_requests() as requests:
        dataset = read_dataset_status(settings)
        assert [shard.status for shard in dataset.shards()] == [COMPLETE] * len(KEYS)
    records = [
        request
        for request in requests
        if request.startswith("GET") and "/out/records/" in request and request.endswith(".json")
    ]
    assert len(records) == len(KEYS) * len(stage_dag(settings))
    assert sum("list-type=2" in request for request in requests) == len(requests) - len(records) - 1  # the raw root


def test_an_output_that_was_replaced_after_the_listing_of_a_look(settings: Settings, s3_environment: S3Server) -> None:
    requests_of(settings, KEYS[0])
    dataset = read_dataset_status(settings)
    raw = f"{settings.storage.raw_root}/{KEYS[0]}.tar"
    s3_environment.fs.pipe(raw, s3_environment.fs.cat_file(raw) + bytes(10_240))
    requests_of(settings, KEYS[0])  # its records name other stamps than were listed
    assert set(dataset.valid_records(KEYS[0])) == set(stage_dag(settings))
    with atomic_output(settings.storage.shard(KEYS[0]).output("filtered"), settings.storage.options) as out:
        out.write(b"another")
    assert read_dataset_status(settings).look(KEYS[0]).status.text.startswith("no filtered: its files are not those")


def test_rows_by_reference_in_a_bucket(settings: Settings, s3_environment: S3Server) -> None:
    copied = requests_of(settings, KEYS[0])
    expected = s3_environment.fs.cat_file(settings.storage.shard(KEYS[0]).output("final_tars"))
    storage = settings.storage.model_copy(update={"image_bytes": "referenced"})
    by_reference = settings.model_copy(update={"storage": storage})
    referenced = requests_of(by_reference, KEYS[0])
    assert s3_environment.fs.cat_file(settings.storage.shard(KEYS[0]).output("final_tars")) == expected
    assert read_dataset_status(by_reference).look(KEYS[0]).status == COMPLETE
    # a stage that reads images looks at the raw shard before and after, and reads it
    more = {name: len(referenced[name]) - len(copied[name]) for name in referenced}
    assert {name: count for name, count in more.items() if count > 4} == {}
    assert sum(map(len, referenced.values())) <= MOST_BY_REFERENCE
    raw = f"{settings.storage.raw_root}/{KEYS[0]}.tar"
    s3_environment.fs.pipe(raw, s3_environment.fs.cat_file(raw) + bytes(10_240))
    s3_environment.fs.rm(settings.storage.shard(KEYS[0]).record("final_tars"))
    with pytest.raises(ShardError, match=r"0\.tar is not the raw shard that normalized was made from"):
        take_through(stage_dag(by_reference)["final_tars"], KEYS[0], by_reference)
