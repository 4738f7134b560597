"""Finding input files and grouping them into partitions."""

import io
import zipfile
from pathlib import Path

import fsspec
import pytest

from interleaved_assets.io.storage.listing import InputFile, find_files, group_files, parse_size
from interleaved_assets.model.errors import OptionError, StorageError
from interleaved_assets_tests.s3 import S3Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in {"b.tar": 2, "a.TAR": 1, "sub/deep/c.tar": 3, "sub/notes.txt": 9, ".a.tar.0f.tmp": 5}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return tmp_path


def test_a_folder_is_searched_recursively_for_its_endings(folder: Path) -> None:
    found = [InputFile(str(folder / name), size) for name, size in [("a.TAR", 1), ("b.tar", 2), ("sub/deep/c.tar", 3)]]
    assert find_files(folder, (".tar",)) == found
    assert find_files(f"{folder}/", (".tar",)) == found
    assert find_files(folder.as_uri(), (".tar",)) == found


def test_a_glob_does_not_go_down_into_folders_that_match(folder: Path) -> None:
    assert [Path(file.uri).name for file in find_files(f"{folder}/*", (".tar",))] == ["a.TAR", "b.tar"]
    assert [Path(file.uri).name for file in find_files(f"{folder}/**/c.*", (".tar",))] == ["c.tar"]


def test_what_looks_like_a_shard_and_is_passed_over_is_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.tar.xz", "b.tar.bz2", "sub/c.TAR.zst", "sub/d.tar.lz4", "e.json", ".f.tar.part"):
        (folder / name).touch()
    assert [Path(file.uri).name for file in find_files(folder, (".tar",))] == ["a.TAR", "b.tar", "c.tar"]
    passed_over = "a.tar.xz, b.tar.bz2, c.TAR.zst and 1 more"
    assert f"not read because of the last ending of the name: {passed_over}. Unpack or rename them" in caplog.text
    caplog.clear()
    find_files(f"{folder}/*", (".tar.xz", ".json"))
    for name in ("a.TAR.idx", "b.tar.sha256"):
        (folder / "beside" / name).parent.mkdir(exist_ok=True)
        (folder / "beside" / name).touch()
    (folder / "beside/b.tar").touch()
    find_files(folder / "beside", (".tar",))
    assert not caplog.records


def test_a_list_is_sorted_and_each_file_comes_once(folder: Path) -> None:
    found = find_files([folder / "sub", f"{folder}/*.tar", folder / "b.tar"], (".tar",))
    assert [Path(file.uri).name for file in found] == ["b.tar", "c.tar"]


def test_a_named_file_is_read_with_any_extension(folder: Path) -> None:
    assert find_files(folder / "sub" / "notes.txt", (".tar",)) == [InputFile(str(folder / "sub/notes.txt"), 9)]


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(folder: Path) -> None:
    (folder / "[1].tar").write_bytes(b"xy")
    assert find_files(folder / "[1].tar", (".tar",)) == [InputFile(str(folder / "[1].tar"), 2)]


def test_a_relative_path_becomes_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "sub")
    assert find_files("../b.tar", (".tar",)) == [InputFile(str(folder / "b.tar"), 2)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", r"cannot find .*/missing: No such file or directory\. Check the path"),
        ("*.parquet", r"/\*\.parquet matches no file that ends in \.tar or \.tgz\. Check"),
        ("sub/*.txt", r"matches no file that ends in \.tar or \.tgz \(1 with other endings\)"),
        ("empty", r"/empty holds no file that ends in"),
    ],
)
def test_missing_paths_are_named(folder: Path, path: str, message: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(StorageError, match=message):
        find_files(folder / path, (".tar", ".tgz"))


def test_no_paths_raise_option_error() -> None:
    with pytest.raises(OptionError, match="file_paths is empty"):
        find_files([], (".tar",))


def test_s3_urls_lead_back_to_s3(s3_server: S3Server, bucket: str) -> None:
    fs, options = s3_server.fs, s3_server.storage_options
    fs.pipe({f"{bucket}/raw/a.tar": b"12", f"{bucket}/raw/sub/b.tar": b"123", f"{bucket}/raw/c.txt": b""})
    files = [InputFile(f"{bucket}/raw/a.tar", 2), InputFile(f"{bucket}/raw/sub/b.tar", 3)]
    assert find_files(f"{bucket}/raw", (".tar",), options) == files
    assert find_files(f"{bucket}/raw/*.tar", (".tar",), options) == files[:1]
    assert find_files([f"{bucket}/raw/sub/b.tar"], (".tar",), options) == files[1:]
    with pytest.raises(StorageError, match="s3://no-such-bucket/raw"):
        find_files("s3://no-such-bucket/raw", (".tar",), options)


def test_a_url_without_a_bucket_is_a_wrong_option(s3_server: S3Server) -> None:
    with pytest.raises(OptionError, match=r"^s3:// cannot be searched: the URL names no bucket: "):
        find_files("s3://", (".tar",), s3_server.storage_options)


def test_new_shards_are_found_despite_listing_caches(s3_server: S3Server, bucket: str) -> None:
    fs, options = s3_server.fs, s3_server.storage_options
    fs.pipe(f"{bucket}/raw/a.tar", b"1")
    assert len(find_files(f"{bucket}/raw", (".tar",), options)) == 1
    # through a client of its own, so that fsspec's cached listing knows nothing of it
    fs.__class__(skip_instance_cache=True, **options).pipe(f"{bucket}/raw/b.tar", b"1")
    assert len(find_files(f"{bucket}/raw", (".tar",), options)) == 2


def test_local_and_remote_paths_mix(s3_server: S3Server, bucket: str, folder: Path) -> None:
    s3_server.fs.pipe(f"{bucket}/a.tar", b"12")
    found = find_files([bucket, str(folder / "b.tar")], (".tar",), s3_server.storage_options)
    assert [file.uri for file in found] == [str(folder / "b.tar"), f"{bucket}/a.tar"]


def test_a_chained_url_keeps_its_chain(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("in/a.tar", b"12")
    (found,) = find_files(f"zip://in/*.tar::{tmp_path}/z.zip", (".tar",))
    assert found == InputFile(f"zip://in/a.tar::{tmp_path}/z.zip", 2)
    with fsspec.open(found.uri) as file:
        assert file.read() == b"12"


FILES = [InputFile(name, size) for name, size in [("a", 3), ("b", 4), ("c", 20), ("d", 1), ("e", 1)]]


def _names(groups: list[list[InputFile]]) -> list[str]:
    return ["".join(file.uri for file in group) for group in groups]


def test_groups() -> None:
    assert _names(group_files(FILES)) == ["a", "b", "c", "d", "e"]
    assert _names(group_files(FILES, files_per_partition=2)) == ["ab", "cd", "e"]
    assert _names(group_files(FILES, blocksize=7)) == ["ab", "c", "de"]
    assert _names(group_files(FILES, blocksize="1KiB")) == ["abcde"]
    assert group_files([]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files_per_partition": 0}, "files_per_partition must be a whole number from 1, got 0"),
        ({"files_per_partition": 1, "blocksize": 1}, "exclude each other"),
        ({"blocksize": 0}, "blocksize must be at least one byte, got 0"),
        ({"blocksize": "many"}, "blocksize must be bytes as a whole number, or text such as '512MiB'"),
        ({"blocksize": True}, "blocksize must be bytes"),
    ],
)
def test_grouping_options_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        group_files(FILES, **options)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 2**29), ("1.5 GB", 1_500_000_000), ("2tib", 2**41), ("10", 10), (" 7 b ", 7), ("3KB", 3000), (5, 5)],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("given", [None, 5, b"a.tar", [None], [b"a.tar"], io.BytesIO()])
def test_what_is_no_path_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match="file_paths is a path or a URL, got "):
        find_files(given, (".tar",))
