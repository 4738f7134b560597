"""Shards whose raw shard is gone: what is stored for them is found, and removed without harm to others."""

import errno
from pathlib import Path

import pytest

from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets.pipeline.status.dataset_status import VANISHED, read_dataset_status
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files, vanished_shards
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.documents import STAGES, good_shard, project, refuse_listing
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import system_calls

KEY, OTHER = "web/a", "web/a%20b"


def renamed(settings: Settings, folder: Path) -> None:
    """The raw shard of one of the two shards has another name since they went through all stages."""
    (folder / "raw/web/a.tar").rename(folder / "raw/web/renamed.tar")


pytestmark = pytest.mark.project(shards={"web/a": 0, "web/a b": 1}, done=(KEY, OTHER), finish=renamed)


def stored(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_file_of_the_shard_goes_and_no_other(settings: Settings, tmp_path: Path) -> None:
    before = stored(tmp_path / "out")
    assert vanished_shards(settings.storage) == [KEY]
    found = files_to_forget([KEY], settings.storage)
    assert stored(tmp_path / "out") == before
    assert {uri: Path(uri).stat().st_size for uri in found[KEY]} == found[KEY]
    remove_files(found, settings.storage)
    kept = {name for name in before if Path(name).stem != "a"}
    assert len(before - kept) == len(found[KEY]) > 2 * len(STAGES)
    assert stored(tmp_path / "out") == kept
    assert vanished_shards(settings.storage) == []
    assert files_to_forget([KEY], settings.storage) == {KEY: {}}


def test_the_parts_of_a_final_tar_go_from_the_last_on(tmp_path: Path) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 1\n")
    for seed, key in enumerate(("a", "a~00000")):  # the key of the second is a%7E00000
        good_shard(tmp_path / f"raw/{key}.tar", seed=seed)
    for key in ("a", "a%7E00000"):
        take_all(settings, key)
    (tmp_path / "raw/a.tar").unlink()
    parts = [f"{tmp_path}/out/tars/a~{number:05d}.tar" for number in (2, 1, 0)]
    found = files_to_forget(["a"], settings.storage)
    assert [uri for uri in found["a"] if "/tars/" in uri] == parts
    Path(parts[0]).unlink()  # as by a removal that was cut off after the record and this part
    Path(settings.storage.shard("a").record("final_tars")).unlink()
    found = files_to_forget(["a"], settings.storage)
    assert [uri for uri in found["a"] if "/tars/" in uri] == parts[1:]
    remove_files(found, settings.storage)
    assert sorted(stored(tmp_path / "out/tars")) == [f"a%7E00000~{number:05d}.tar" for number in range(3)]


def test_a_file_whose_name_is_no_key_keeps_no_shard_from_being_forgotten(settings: Settings, tmp_path: Path) -> None:
    for folder in ("failures", "records"):
        copy = tmp_path / f"out/{folder}/normalized/a (copy).json"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("{}")
    assert vanished_shards(settings.storage) == [KEY]
    assert files_to_forget(vanished_shards(settings.storage), settings.storage)[KEY]


def test_a_shard_in_a_folder_that_cannot_be_listed_is_kept(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_listing(monkeypatch, tmp_path / "raw/web")
    good_shard(tmp_path / "raw/b.tar")  # the raw root holds another shard
    with pytest.raises(OptionError, match=r"which raw shards are gone is not known: cannot list .*/web: Permission"):
        vanished_shards(settings.storage)
    with pytest.raises(
        OptionError, match=rf"{OTHER} is not forgotten: its raw shard may still be there. cannot list .*/web"
    ):
        files_to_forget([OTHER], settings.storage)


def test_records_that_cannot_be_listed_are_not_taken_for_none(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_listing(monkeypatch, tmp_path / "out/records/normalized/web")
    with pytest.raises(StorageError, match=r"cannot list .*/records/normalized/web: Permission denied"):
        vanished_shards(settings.storage)


def test_a_removal_that_was_cut_off_can_be_repeated(settings: Settings, tmp_path: Path) -> None:
    found = files_to_forget([KEY], settings.storage)
    assert list(found[KEY])[:2] == [f"{tmp_path}/out/records/final_tars/{KEY}.json", f"{tmp_path}/out/tars/{KEY}.tar"]
    left = list(found[KEY])

    def cut_off(event: str, path: str) -> None:
        if event == "os.remove" and len(left) == 1:
            raise OSError(errno.EIO, "the disk is away")
        if event == "os.remove":
            assert path == left.pop(0)

    with system_calls(cut_off), pytest.raises(StorageError, match="the disk is away"):
        remove_files(found, settings.storage)
    assert left == [f"{tmp_path}/out/records/normalized/{KEY}.json"]
    assert vanished_shards(settings.storage) == [KEY]
    remove_files(files_to_forget([KEY], settings.storage), settings.storage)
    assert vanished_shards(settings.storage) == []


def test_a_shard_in_the_middle_of_a_removal_is_reported_as_vanished(settings: Settings) -> None:
    files = list(files_to_forget([KEY], settings.storage)[KEY])
    for uri in files[:2]:
        Path(uri).unlink()
    found = read_dataset_status(settings)
    assert found.status(KEY, found.valid_records(KEY)) == VANISHED
    assert "final_tars" not in found.valid_records(KEY)


def test_a_shard_whose_raw_tar_is_there_is_refused(settings: Settings) -> None:
    with pytest.raises(
        OptionError, match=rf"shard {OTHER} is not forgotten: its raw shard .*/raw/web/a b\.tar is still"
    ):
        files_to_forget([KEY, OTHER], settings.storage)


@pytest.mark.parametrize("key", ["../raw/web/a", "web/../web/a", "", "/web/a", "web//a", "web/a b", "web/*"])
def test_what_is_no_key_is_refused(settings: Settings, key: str) -> None:
    with pytest.raises(OptionError, match="is not the key of a shard"):
        files_to_forget([key], settings.storage)


def test_nothing_counts_as_vanished_below_an_empty_or_missing_raw_root(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "raw").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="does not exist"):
        vanished_shards(settings.storage)
    with pytest.raises(StorageError, match="does not exist"):
        files_to_forget([KEY], settings.storage)
    (tmp_path / "raw").mkdir()
    with pytest.raises(OptionError, match="holds no shard: mount its disk"):
        vanished_shards(settings.storage)


@pytest.mark.system
def test_a_shard_in_a_bucket(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    storage = StorageSettings(raw_root=f"{bucket}/raw", output_root=f"{bucket}/out", options=s3_server.storage_options)
    settings = project(tmp_path).model_copy(update={"storage": storage})
    for seed, name in enumerate(("a", "a.json")):  # below records/normalized, the folder a.json stands beside a.json
        s3_server.fs.put_file(str(good_shard(tmp_path / "a.tar", seed=seed)), f"{bucket}/raw/{name}/b.tar")
    keys = ["a/b", "a.json/b"]
    for key in keys:
        take_all(settings, key)
    s3_server.fs.rm(f"{bucket}/raw/a/b.tar")
    assert vanished_shards(storage) == ["a/b"]
    found = files_to_forget(["a/b"], storage)
    assert min(found["a/b"].values()) > 0
    remove_files(found, storage)
    s3_server.fs.invalidate_cache()
    left = s3_server.fs.find(f"{bucket}/out")
    assert len(left) == len(found["a/b"]) > 2 * len(STAGES)
    assert all("/a.json/b" in path for path in left)
    assert vanished_shards(storage) == []
    assert files_to_forget(["a"], storage) == {"a": {}}  # where a stage of a shard "a" would write lies a folder
