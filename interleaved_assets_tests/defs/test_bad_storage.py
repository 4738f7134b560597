"""Storage that refuses: by permission, bucket, credentials or clock; and what is left once it is mended."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance

from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.defs.runs import STAGES, Watcher, files, materialized, run_chain
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_gate import BAD_GATEWAY, EXPIRED, SKEWED, Refusal, S3Gate, s3_gate

KEYS = ("a", "b")


@pytest.fixture
def base(tmp_path: Path) -> Settings:
    return project(tmp_path, "[watch]\nquiet_seconds = 0\n[run]\nstorage_tries = 2\n")


@pytest.fixture
def raw(tmp_path: Path, s3_server: S3Server, bucket: str) -> str:
    """URL of a raw root with two shards."""
    for key in KEYS:
        tar = good_shard(tmp_path / f"{key}.tar", seed=ord(key))
        s3_server.fs.put_file(str(tar), f"{bucket}/raw/{key}.tar")
    return f"{bucket}/raw"


@pytest.fixture
def gate(s3_server: S3Server) -> Iterator[S3Gate]:
    with s3_gate(s3_server) as gate:
        yield gate


def within(base: Settings, raw: str, out: str, options: Mapping[str, object]) -> Settings:
    storage = StorageSettings(raw_root=raw, output_root=out, options=dict(options))
    return base.model_copy(update={"storage": storage})


def below(server: S3Server, url: str) -> list[str]:
    """Everything that lies below ``url`` but the failures of shards."""
    server.fs.invalidate_cache()
    return [path for path in server.fs.find(url) if "/failures/" not in path]


def etag(server: S3Server, url: str) -> str:
    """The version that an object has by what the store says of it."""
    server.fs.invalidate_cache()
    info = server.fs.info(url)
    return f"etag:{info['ETag'].strip(chr(34))}-{info['size']}"


def observed_version(instance: DagsterInstance, key: str) -> str:
    """The version under which a raw shard was last observed."""
    found = AssetRecordsFilter(asset_key=AssetKey("raw_shards"), asset_partitions=[key])
    (last,) = instance.fetch_observations(found, limit=1).records
    assert last.asset_observation is not None
    return last.asset_observation.tags["dagster/data_version"]


def record_of(settings: Settings, key: str) -> Record:
    """What stands recorded of a shard's tar."""
    paths = settings.storage.shard(key)
    record = read_record(paths.record("final_tars"), settings.storage.options)
    assert record is not None
    return record


def test_an_object_that_is_replaced_is_reported_by_its_etag_and_goes_through_again(
    base: Settings, tmp_path: Path, raw: str, s3_server: S3Server, instance: DagsterInstance
) -> None:
    settings = within(base, raw, raw.replace("/raw", "/out"), s3_server.storage_options)
    watcher = Watcher(instance, settings)
    watcher.tick()
    assert watcher.observed == list(KEYS)
    assert run_chain(instance, settings, KEYS).success
    before = {key: observed_version(instance, key) for key in KEYS}
    assert before == {key: etag(s3_server, f"{raw}/{key}.tar") for key in KEYS}
    made = {key: record_of(settings, key).outputs for key in KEYS}

    again = good_shard(tmp_path / "again.tar", seed=ord("a"))
    s3_server.fs.put_file(str(again), f"{raw}/a.tar")  # the same content under a new time
    assert watcher.tick() == "2 unchanged"
    other = good_shard(tmp_path / "other.tar", seed=99)
    s3_server.fs.put_file(str(other), f"{raw}/a.tar")
    watcher.tick()
    assert watcher.observed == [*KEYS, "a"]
    assert observed_version(instance, "a") == etag(s3_server, f"{raw}/a.tar") != before["a"]
    assert observed_version(instance, "b") == before["b"]
    assert run_chain(instance, settings, KEYS).success
    assert record_of(settings, "a").outputs != made["a"]
    assert record_of(settings, "b").outputs == made["b"]


@pytest.mark.system
def test_an_output_root_that_may_not_be_written(
    base: Settings, tmp_path: Path, s3_server: S3Server, instance: DagsterInstance
) -> None:
    for key in KEYS:
        tar = good_shard(tmp_path / f"{key}.tar", seed=ord(key))
        s3_server.fs.put_file(str(tar), f"s3://shared/readable/{key}.tar")
    settings = within(base, "s3://shared/readable", "s3://shared/unwritable", s3_server.reader_options)
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    for key in KEYS:
        (error,) = [line for line in ran.errors if line.startswith(f"normalized, shard {key}: ")]
        assert re.search(r"cannot write s3://shared/unwritable/\S+: Access Denied\. Grant access", error)
    # failures cannot be stored, so the asset at which all shards failed ends the run, with their errors
    assert ran.summary.startswith("normalized: 2 of 2 shards failed.\n")
    assert "Access Denied. Grant access" in ran.summary
    assert not any(materialized(instance, asset) for asset in STAGES)
    watcher = Watcher(instance, settings)
    with pytest.raises(StorageError, match=r"cannot write s3://shared/unwritable/state/.*Access Denied\. Grant access"):
        watcher.tick()
    assert (watcher.cursor, watcher.observed) == (None, [])
    assert below(s3_server, "s3://shared/unwritable") == []
    # once access is granted, the same run and the same tick do what they would have done
    allowed = within(base, "s3://shared/readable", "s3://shared/unwritable", s3_server.storage_options)
    watcher.settings = allowed
    watcher.tick()
    assert watcher.observed == list(KEYS)
    assert run_chain(instance, allowed, KEYS).success
    assert materialized(instance, "final_tars") == set(KEYS)


RUN_IN_A_PROCESS = """
import sys
from dagster import DagsterInstance
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defs.runs import run_chain
with DagsterInstance.ephemeral() as instance:
    ran = run_chain(instance, load_settings(sys.argv[1]), ["a"])
print(ran.success, *ran.errors, sep="\\n")
"""


@pytest.mark.system  # imports all of Dagster in a process of its own
def test_a_local_folder_that_may_not_be_written(base: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    out = tmp_path / "out"
    (out / "normalized").mkdir(parents=True)
    (out / "normalized").chmod(0o500)
    # root may write anywhere, unless the process is without that privilege
    bounded = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()
    ended = subprocess.run(
        [*bounded, sys.executable, "-c", RUN_IN_A_PROCESS, str(tmp_path / "interleaved.toml")],
        capture_output=True,
        text=True,
        check=True,
    )
    success, *errors = ended.stdout.splitlines()
    assert success == "False"
    assert errors[0] == (
        f"normalized, shard a: cannot write {out}/normalized/a.parquet: Permission denied. "
        "Grant the user of this process access to it."
    )
    assert files(out).keys() == {"failures/normalized/a.json"}
    (out / "normalized").chmod(0o700)
    with DagsterInstance.ephemeral() as instance:
        assert run_chain(instance, base, ["a"]).success
    assert "failures/normalized/a.json" not in files(out)


@pytest.mark.system
def test_a_raw_bucket_that_is_gone(base: Settings, raw: str, s3_server: S3Server, instance: DagsterInstance) -> None:
    """A look that fails is no look at an empty folder: nothing counts as vanished."""
    out = f"s3://{s3_server.new_bucket()}/out"
    settings = within(base, raw, out, s3_server.storage_options)
    watcher = Watcher(instance, settings)
    watcher.tick()
    cursor = watcher.cursor
    assert run_chain(instance, settings, KEYS).success
    before = below(s3_server, out)
    s3_server.fs.rm(raw.removesuffix("/raw"), recursive=True)
    with pytest.raises(StorageError, match=rf"raw root {raw} does not exist: set storage\.raw_root"):
        watcher.tick()
    assert watcher.cursor == cursor
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    assert (
        f"normalized, shard a: shard 'a' is not below {raw}: it was moved or deleted (then interleaved forget removes "
        "what is stored of it), or the key has a typo"
    ) in ran.errors
    assert below(s3_server, out) == before
    # the bucket is back with the same shards: nothing is new
    s3_server.fs.mkdir(raw.removesuffix("/raw"))
    for key in KEYS:
        good = good_shard(Path(base.storage.raw_root, f"{key}.tar"), seed=ord(key))
        s3_server.fs.put_file(str(good), f"{raw}/{key}.tar")
    assert watcher.tick() == "2 unchanged"
    assert watcher.observed == list(KEYS)
    assert run_chain(instance, settings, KEYS).success


@pytest.mark.system
def test_an_output_bucket_that_is_gone(
    base: Settings, raw: str, s3_server: S3Server, instance: DagsterInstance
) -> None:
    name = s3_server.new_bucket()
    settings = within(base, raw, f"s3://{name}/out", s3_server.storage_options)
    s3_server.fs.rmdir(name)
    watcher = Watcher(instance, settings)
    message = (
        rf"cannot write s3://{name}/out/\S+: The specified bucket does not exist\. Create the bucket, or check its name"
    )
    with pytest.raises(StorageError, match=message):
        watcher.tick()
    assert (watcher.cursor, watcher.observed) == (None, [])
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    assert re.search(rf"normalized, shard b: {message}", "\n".join(ran.errors))
    s3_server.fs.mkdir(name)
    watcher.tick()
    assert watcher.observed == list(KEYS)
    assert run_chain(instance, settings, KEYS).success


@pytest.mark.parametrize("wrong", [{"secret": "wrong"}, pytest.param({"key": "unknown-key"}, marks=pytest.mark.system)])
def test_credentials_that_are_wrong(
    base: Settings, raw: str, s3_server: S3Server, instance: DagsterInstance, wrong: dict[str, str]
) -> None:
    out = raw.replace("/raw", "/out")
    settings = within(base, raw, out, s3_server.storage_options | wrong)
    watcher = Watcher(instance, settings)
    with pytest.raises(
        StorageError, match=rf"cannot list the raw shards below {raw}: .* Pass the right key and secret"
    ):
        watcher.tick()
    assert (watcher.cursor, watcher.observed) == (None, [])
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    message = rf"normalized, shard a: cannot read {out}/records/normalized/a\.json: .* Pass the right key and secret"
    assert re.search(message, "\n".join(ran.errors))
    assert below(s3_server, out) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (EXPIRED, "credentials have expired"),
        (SKEWED, "machine's clock"),
    ],
)
def test_credentials_that_expire_in_the_middle_of_a_run(
    base: Settings, raw: str, gate: S3Gate, instance: DagsterInstance, refusal: Refusal, advice: str
) -> None:
    """From the moment when one shard has its scores, every request is refused; a clock that jumps looks the same."""
    out = raw.replace("/raw", "/out")
    settings = within(base, raw, out, gate.storage_options)
    watcher = Watcher(instance, settings)
    watcher.tick()
    cursor = watcher.cursor

    def expired(method: str, path: str) -> Refusal | None:
        over = gate.refused or (method == "PUT" and "/out/records/image_scores/" in path)
        return refusal if over else None

    gate.refuses = expired
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    assert advice in " ".join(ran.errors)
    assert materialized(instance, "normalized") == set(KEYS)
    assert materialized(instance, "image_scores") == set()
    assert len(gate.refused) < 40  # attempts are limited
    with pytest.raises(StorageError, match=advice):
        watcher.tick()
    assert watcher.cursor == cursor
    # renewed: what was done stays as it is, the rest is made
    gate.refuses = lambda method, path: None
    done = {key: gate.fs.info(f"{out}/normalized/{key}.parquet")["LastModified"] for key in KEYS}
    assert watcher.tick() == "2 unchanged"
    assert run_chain(instance, settings, KEYS).success
    gate.fs.invalidate_cache()
    assert {key: gate.fs.info(f"{out}/normalized/{key}.parquet")["LastModified"] for key in KEYS} == done
    assert materialized(instance, "final_tars") == set(KEYS)


def test_a_storage_that_refuses_everything_once_a_run_has_begun(
    base: Settings, raw: str, gate: S3Gate, instance: DagsterInstance
) -> None:
    """The run ends with the errors of its shards, not with that of the next listing."""
    settings = within(base, raw, raw.replace("/raw", "/out"), gate.storage_options)
    gate.refuses = lambda method, path: EXPIRED if gate.refused or method == "PUT" else None
    ran = run_chain(instance, settings, KEYS)
    assert ran.summary.startswith("normalized: 2 of 2 shards failed.\n")
    assert "The credentials have expired: renew them" in ran.summary


@pytest.mark.system
def test_a_shard_that_fails_beside_a_current_one_while_its_failure_cannot_be_stored(
    base: Settings, tmp_path: Path, raw: str, gate: S3Gate, instance: DagsterInstance
) -> None:
    """Its outputs of before are there; a run that went on with them would succeed."""
    settings = within(base, raw, raw.replace("/raw", "/out"), gate.storage_options)
    assert run_chain(instance, settings, KEYS).success
    other = good_shard(tmp_path / "other.tar", seed=99)
    gate.fs.put_file(str(other), f"{raw}/a.tar")
    full = Refusal(403, "QuotaExceeded", "Bucket quota exceeded.")
    gate.refuses = lambda method, path: full if method == "PUT" and "/out/" in path else None
    ran = run_chain(instance, settings, KEYS)
    assert not ran.success
    assert ran.summary.startswith("normalized: 1 of 2 shards failed, ")
    gate.refuses = lambda method, path: None
    assert run_chain(instance, settings, KEYS).success


@pytest.mark.system
@pytest.mark.parametrize(
    "full",
    [
        Refusal(403, "QuotaExceeded", "Bucket quota exceeded."),
        Refusal(507, "XMinioStorageFull", "Storage is full."),
    ],
)
def test_a_bucket_that_is_full(
    base: Settings, raw: str, gate: S3Gate, instance: DagsterInstance, full: Refusal
) -> None:
    """What is refused once stays refused: it is not tried again, and the error says what to do."""
    out = raw.replace("/raw", "/out")
    settings = within(base, raw, out, gate.storage_options | {"config_kwargs": {"retries": {"max_attempts": 0}}})
    gate.refuses = lambda method, path: full if method == "PUT" and "/out/filtered/" in path else None
    ran = run_chain(instance, settings, KEYS)
    assert ran.summary.startswith("final_tars: 2 of 2 shards failed (2 at filtered).\n")
    assert "Free some space in the bucket, or raise its quota." in ran.summary
    assert len(gate.refused) == len(KEYS)
    gate.refuses = lambda method, path: None
    assert run_chain(instance, settings, KEYS).success


@pytest.mark.system
def test_only_storage_that_does_not_answer_is_retried(
    base: Settings, raw: str, gate: S3Gate, instance: DagsterInstance
) -> None:
    out = raw.replace("/raw", "/out")
    no_retries_below = {"config_kwargs": {"retries": {"max_attempts": 0}}}
    settings = within(base, raw, out, gate.storage_options | no_retries_below)

    def at_first(method: str, path: str) -> Refusal | None:
        """The first time that either shard is to be written, and whatever one asks of the other's scores."""
        writes = method == "PUT" and "/out/normalized/" in path and f"{method} {path}" not in gate.refused
        return BAD_GATEWAY if writes else EXPIRED if "/out/records/image_scores/b" in path else None

    gate.refuses = at_first
    ran = run_chain(instance, settings, KEYS)
    assert materialized(instance, "normalized") == set(KEYS)
    assert materialized(instance, "final_tars") == {"a"}
    assert not ran.success
    asked = [request.partition("?")[0] for request in gate.refused]
    for key in KEYS:
        assert len([request for request in asked if f"/out/normalized/{key}" in request]) == 1
    assert len([request for request in asked if "/out/records/image_scores/b" in request]) == 1
