import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("open_clip")
import open_clip
import torch
from safetensors.torch import save_file

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.model import load_clip
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets_tests.scoring.clip_tiny import CONFIG, CONTEXT, SIDE, WIDTH, tiny_module, write_tiny

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ClipSettings:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def changed(settings: ClipSettings, **values: object) -> ClipSettings:
    return ClipSettings.model_validate(settings.model_dump() | values)


def test_a_model_of_ones_own_from_a_configuration_and_a_checkpoint(tiny: ClipSettings) -> None:
    model = load_clip(tiny)
    assert (model.name, model.width, model.precision, model.resizer) == ("tiny/tiny.pt", WIDTH, "fp32", "pillow")
    assert (model.device.type, model.device_name) == ("cpu", "cpu")
    assert model.preprocess_config.size in (SIDE, (SIDE, SIDE))
    assert model.tokenizer.context_length == CONTEXT
    assert not model.module.training
    assert not any(weights.requires_grad for weights in model.module.parameters())
    wanted = tiny_module().state_dict()
    assert all(torch.equal(weights, wanted[name]) for name, weights in model.module.state_dict().items())


def test_a_model_is_loaded_once_and_again_when_its_checkpoint_changes(tmp_path: Path) -> None:
    settings = write_tiny(tmp_path)
    first = load_clip(settings)
    assert load_clip(changed(settings, batch_size=3, long_text="window", threads=7)) is first
    write_tiny(tmp_path, seed=1)
    second = load_clip(settings)
    assert second is not first
    assert second.fingerprint != first.fingerprint


def test_safetensors_a_wrapped_state_dict_and_a_configuration_beside_its_preprocessing(tmp_path: Path) -> None:
    settings = write_tiny(tmp_path)
    state = tiny_module().state_dict()
    (tmp_path / "whole.json").write_text(
        json.dumps(
            {"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}}
        )
    )
    save_file(state, tmp_path / "tiny.safetensors")
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "t.pt"
    )
    for checkpoint in ("tiny.safetensors", "t.pt"):
        model = load_clip(
            changed(settings, pretrained=str(tmp_path / checkpoint), model_config_path=str(tmp_path / "whole.json"))
        )
        assert torch.equal(model.module.visual.proj, state["visual.proj"])
        assert model.preprocess_config.mean == [0.5] * 3
        assert model.preprocess_config.resize_mode == "squash"


def test_a_folder_with_configuration_and_weights(tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": {}}))
    with pytest.raises(SettingsError, match="cannot be loaded"):
        # never with random weights
        load_clip(ClipSettings(model=f"local-dir:{tmp_path}", device="cpu"))
    save_file(tiny_module().state_dict(), tmp_path / "open_clip_model.safetensors")
    assert load_clip(ClipSettings(model=f"local-dir:{tmp_path}", device="cpu")).width == WIDTH


def test_precision_is_as_set_and_a_resizer_goes_with_it(tiny: ClipSettings) -> None:
    low, mixed = load_clip(changed(tiny, precision="bf16")), load_clip(changed(tiny, precision="bf16", resize="pillow"))
    assert (low.precision, low.resizer, mixed.resizer) == ("bf16", "torch", "pillow")
    assert len({low.fingerprint, mixed.fingerprint, load_clip(tiny).fingerprint}) == 3
    # only the image tower is stored in half precision
    assert torch.bfloat16 in {weights.dtype for weights in low.module.visual.parameters()}
    others = [weights for name, weights in low.module.named_parameters() if not name.startswith("visual.")]
    assert {weights.dtype for weights in others} == {torch.float32}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_never_falls_back_and_auto_does(tiny: ClipSettings) -> None:
    with pytest.raises(SettingsError, match=r"clip.device = 'cuda', and torch .* finds no GPU here"):
        load_clip(changed(tiny, device="cuda"))
    assert load_clip(changed(tiny, device="auto")).device.type == "cpu"


def test_an_unknown_model_names_those_that_are_close() -> None:
    with pytest.raises(SettingsError, match=r"has no model 'ViT-L14-quickgelu'; close to it: .*ViT-L-14-quickgelu"):
        load_clip(ClipSettings(model="ViT-L14-quickgelu", device="cpu"))


def test_an_unknown_tag_names_those_there_are() -> None:
    with pytest.raises(
        SettingsError, match=r"'openia' is no file, and no tag of ViT-L-14-quickgelu; its tags: openai, "
    ):
        load_clip(ClipSettings(pretrained="openia", device="cpu"))


def test_a_missing_file_is_named(tiny: ClipSettings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"clip\.pretrained: cannot read .*gone\.pt: No such file"):
        load_clip(changed(tiny, pretrained=str(tmp_path / "gone.pt")))
    with pytest.raises(SettingsError, match=r"gone.json"):
        load_clip(changed(tiny, model_config_path=str(tmp_path / "gone.json")))
    with pytest.raises(SettingsError, match=r"memory://gone/x.pt"):
        load_clip(changed(tiny, pretrained="memory://gone/x.pt"))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04cut"])
def test_a_damaged_checkpoint_is_refused(suffix: str, content: bytes, tiny: ClipSettings, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"model tiny \(.*\) cannot be loaded from .*damaged"):
        load_clip(changed(tiny, pretrained=str(path)))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {name: value for name, value in state.items() if name != "visual.proj"},
        lambda state: state | {"visual.proj": torch.zeros(3, 3)},
        lambda state: state | {"unheard.of": torch.zeros(3)},
        lambda state: {"weight": torch.zeros(1, 3)},
        lambda state: [1, 2, 3],
        lambda state: {},
    ],
    ids=["part", "other width", "more", "a head", "no dict", "empty"],
)
def test_a_checkpoint_of_another_model_is_refused(change: object, tiny: ClipSettings, tmp_path: Path) -> None:
    torch.save(change(tiny_module().state_dict()), tmp_path / "other.pt")  # type: ignore[operator]  # a lambda
    with pytest.raises(
        SettingsError, match=r"cannot be loaded from .*other.pt.*has to be of this very model"
    ) as caught:
        load_clip(changed(tiny, pretrained=str(tmp_path / "other.pt")))
    assert len(str(caught.value)) < 700


def test_weights_that_cannot_be_downloaded_are_to_be_named_as_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        SettingsError, match=r"RN50 cannot be loaded from openai: .* name their file in clip\.pretrained"
    ):
        load_clip(ClipSettings(model="RN50", pretrained="openai", device="cpu"))


class Trap:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("sprung"),)


def test_a_pickle_that_runs_code_is_refused(
    tiny: ClipSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"visual.proj": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(SettingsError, match="cannot be loaded"):
        load_clip(changed(tiny, pretrained=str(tmp_path / "trap.pt")))
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is no JSON object"),
        ("[1]", "is no JSON object"),
        ('{"embed_dim": 3}', r"lacks \['vision_cfg', 'text_cfg'\]"),
        (json.dumps(CONFIG | {"vision_cfg": {"image_size": 32, "unheard_of": 1}}), "unheard_of"),
        (json.dumps(CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"vocab_size": 100}}), "cannot be loaded"),
    ],
)
def test_a_configuration_that_makes_no_model_is_refused(
    content: str, reason: str, tiny: ClipSettings, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(SettingsError, match=reason):
        load_clip(changed(tiny, model_config_path=str(tmp_path / "config.json")))


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused_before_a_device_meets_it(tmp_path: Path) -> None:
    config = CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"vocab_size": 100}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.save(open_clip.CLIP(**config).state_dict(), tmp_path / "small.pt")
    with pytest.raises(SettingsError, match="knows 100 tokens, and its tokenizer gives 49408"):
        load_clip(
            ClipSettings(
                model="small", pretrained=str(tmp_path / "small.pt"), model_config_path=str(tmp_path / "config.json")
            )
        )


def test_loading_says_what_was_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="interleaved_assets"):
        load_clip(write_tiny(tmp_path, seed=7))
    assert "on cpu in fp32" in caplog.text
