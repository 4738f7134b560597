import json
from pathlib import Path

import pytest

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.demo_model import DEMO_MARKER, refuse_demo_model
from interleaved_assets.scoring.clip.settings import ClipSettings

SHIPPED = Path(__file__).parents[3] / "data/models/scenes-clip.safetensors"


def checkpoint(path: Path, metadata: dict[str, str] | None) -> ClipSettings:
    header = json.dumps({} if metadata is None else {"__metadata__": metadata}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return ClipSettings(enabled=True, model="mine", model_config_path="mine.json", pretrained=str(path))


def never() -> bool:
    raise AssertionError("asked about the data although the model is not the demo's")


def test_the_shipped_model_is_refused_for_other_data_with_what_to_set() -> None:
    settings = ClipSettings(enabled=True, model="scenes-clip", model_config_path="x", pretrained=str(SHIPPED))
    with pytest.raises(SettingsError, match=r"drawn scenes only .*clip\.model .*clip\.allow_demo_model = true"):
        refuse_demo_model(settings, lambda: False)
    refuse_demo_model(settings, lambda: True)
    refuse_demo_model(settings.model_copy(update={"allow_demo_model": True}), never)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_a_model_without_the_marker_may_judge_any_data(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    refuse_demo_model(checkpoint(tmp_path / "mine.safetensors", metadata), never)


def test_the_marker_counts_and_not_the_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the demo's model"):
        refuse_demo_model(checkpoint(tmp_path / "mine.safetensors", DEMO_MARKER | {"format": "pt"}), lambda: False)


@pytest.mark.parametrize("content", [b"", b"123", b"\xff" * 20, (2).to_bytes(8, "little") + b"[]"])
def test_what_is_no_checkpoint_is_left_to_the_loading(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(content)
    refuse_demo_model(ClipSettings(model="mine", pretrained=str(path)), never)


def test_a_tag_is_not_the_demos_model() -> None:
    refuse_demo_model(ClipSettings(), never)
