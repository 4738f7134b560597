from pathlib import Path

import fsspec
import pytest

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.identity import (
    file_version,
    file_versions,
    model_fingerprint,
    version_settings,
)
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
from interleaved_assets_tests.s3 import S3Server


@pytest.fixture
def files(tmp_path: Path) -> ClipSettings:
    """Settings that name three files."""
    for name in ("model.json", "model.pt", "head.pth"):
        (tmp_path / name).write_bytes(name.encode())
    return ClipSettings(
        model="mine",
        pretrained=str(tmp_path / "model.pt"),
        model_config_path=str(tmp_path / "model.json"),
        heads={"taste": HeadSettings(path=str(tmp_path / "head.pth"))},
    )


def version(settings: ClipSettings) -> tuple[dict[str, object], dict[str, str]]:
    """All that a score table depends on."""
    return version_settings(settings), file_versions(settings)


def changed(settings: ClipSettings, **values: object) -> ClipSettings:
    return ClipSettings.model_validate(settings.model_dump() | values)


def test_what_changes_no_score_changes_no_fingerprint(files: ClipSettings) -> None:
    other = changed(files, device="cpu", batch_size=7, threads=3, enabled=True)
    assert version(other) == version(files)


@pytest.mark.parametrize(
    "values",
    [
        {"precision": "bf16"},
        {"resize": "torch"},
        {"long_text": "window"},
        {"keep_embeddings": True},
        {"max_pixels": 1000},
        {"prescreen": PrescreenSettings(min_short_side=10).model_dump()},
        {"heads": {}},
    ],
)
def test_what_changes_a_score_changes_the_fingerprint(files: ClipSettings, values: dict[str, object]) -> None:
    assert version(changed(files, **values)) != version(files)


@pytest.mark.parametrize("name", ["model.json", "model.pt", "head.pth"])
def test_a_file_counts_by_its_content_and_not_by_its_place(files: ClipSettings, tmp_path: Path, name: str) -> None:
    before = version(files)
    (tmp_path / name).write_bytes(b"other content")
    assert version(files) != before
    (tmp_path / name).write_bytes(name.encode())
    assert version(files) == before
    (tmp_path / "moved.pt").write_bytes(b"model.pt")
    assert version(changed(files, pretrained=str(tmp_path / "moved.pt"))) == before


def test_text_handling_and_heads_do_not_make_embeddings_stale(files: ClipSettings) -> None:
    other = changed(files, long_text="window", heads={})
    assert model_fingerprint(other, "fp32", "pillow") == model_fingerprint(files, "fp32", "pillow")
    assert model_fingerprint(files, "bf16", "pillow") != model_fingerprint(files, "fp32", "pillow")


def test_a_tag_counts_by_its_name() -> None:
    settings = ClipSettings()
    assert settings.checkpoint is None
    other = ClipSettings(pretrained="laion2b_s32b_b82k")
    assert model_fingerprint(settings, "fp32", "pillow") != model_fingerprint(other, "fp32", "pillow")


def test_a_folder_with_a_model_counts_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text("{}")
    settings = ClipSettings(model=f"local-dir:{tmp_path}")
    before = model_fingerprint(settings, "fp32", "pillow")
    (tmp_path / "open_clip_model.safetensors").write_bytes(b"x")
    assert model_fingerprint(settings, "fp32", "pillow") != before
    with pytest.raises(SettingsError, match=r"no folder .*gone"):
        model_fingerprint(ClipSettings(model=f"local-dir:{tmp_path}/gone"), "fp32", "pillow")


def test_a_remote_file_counts_by_what_its_store_says() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/clip-identity/a.pt", b"123")
    before = file_version("memory://clip-identity/a.pt")
    assert file_version("memory://clip-identity/a.pt") == before
    fs.pipe_file("/clip-identity/a.pt", b"1234")
    assert file_version("memory://clip-identity/a.pt") != before
    assert ClipSettings(pretrained="memory://clip-identity/a.pt").checkpoint == "memory://clip-identity/a.pt"


def test_an_object_counts_by_what_s3_says_without_being_fetched(s3_server: S3Server, bucket: str) -> None:
    for content in (b"123", b"456"):
        s3_server.fs.pipe_file(f"{bucket}/a.pt", content)
        found = {file_version(f"{bucket}/a.pt", s3_server.storage_options) for _ in range(2)}
        assert len(found) == 1
    s3_server.fs.pipe_file(f"{bucket}/a.pt", b"123")
    assert {file_version(f"{bucket}/a.pt", s3_server.storage_options)} != found


def test_a_missing_file_is_named(files: ClipSettings, tmp_path: Path) -> None:
    (tmp_path / "head.pth").unlink()
    with pytest.raises(SettingsError, match=r"clip\.heads\.taste: cannot read .*head\.pth: No such file"):
        version(files)
