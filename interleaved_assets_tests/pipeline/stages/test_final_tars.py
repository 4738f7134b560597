import json
from pathlib import Path

import pytest

from interleaved_assets.model.errors import ReadBackError
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import change_members
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.project(shards={"a": 0})


def through_all(settings: Settings) -> Record:
    """The record of the last stage."""
    return take_all(settings)["final_tars"]


def test_the_record_has_the_counts_of_reading_back(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    assert record.counted == {
        "repeated_keys": 0,
        "repeated_samples": 0,
        "samples_read_back": 3,
        "images_read_back": 4,
        "bytes_read_back": (tmp_path / "out/tars/a.tar").stat().st_size,
    }


def test_a_tar_that_does_not_read_back_is_deleted_and_not_recorded(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_members(monkeypatch, lambda tar, name, content: (name.replace("png", "jpg"), content))
    with pytest.raises(ReadBackError, match=r"names the image 'doc-0-a\.1\.png', which is missing"):
        through_all(settings)
    assert not (tmp_path / "out/records/final_tars/a.json").exists()
    assert list((tmp_path / "out/tars").iterdir()) == []
    monkeypatch.undo()
    assert through_all(settings).counted["samples_read_back"] == 3


@pytest.mark.parametrize("name", ["normalized", "image_scores", "filtered", "final_tars"])
def test_a_stage_whose_record_lacks_counts_runs_again(settings: Settings, tmp_path: Path, name: str) -> None:
    through_all(settings)
    file = tmp_path / f"out/records/{name}/a.json"
    now = json.loads(file.read_text())
    before = {key: value for key, value in now.items() if key not in ("counted", "extents", "required")}
    version = now["code_version"].partition("-")
    file.write_text(json.dumps({**before, "code_version": f"1-{version[2]}"}))
    through_all(settings)
    assert without_stamps(json.loads(file.read_text())) == without_stamps(now)


def without_stamps(record: dict) -> dict:
    """The record without what differs between two runs."""
    outputs = {role: {**output, "stamp": None} for role, output in record["outputs"].items()}
    return {**record, "outputs": outputs, "seconds": None}
