import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from interleaved_assets.scoring.clip.scorer import load_scorer
from interleaved_assets.scoring.clip.settings import ClipSettings, HeadSettings, PrescreenSettings
from interleaved_assets_tests.forked import run_forked


def test_the_default_is_the_peers_model_and_off() -> None:
    settings = ClipSettings()
    assert (settings.enabled, settings.model, settings.pretrained) == (False, "ViT-L-14-quickgelu", "openai")
    assert settings.long_text == "truncate"
    assert not settings.prescreen.is_on


def test_every_setting_says_what_it_is_and_its_default() -> None:
    for section in (ClipSettings, HeadSettings, PrescreenSettings):
        for name, field in section.model_fields.items():
            assert field.description, name
            assert "efault" in field.description, name


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="batchsize"):
        ClipSettings.model_validate({"batchsize": 3})


@pytest.mark.parametrize(
    "values",
    [
        {"device": "tpu"},
        {"precision": "int8"},
        {"batch_size": 0},
        {"threads": 0},
        {"long_text": "skip"},
        {"model": ""},
        {"max_pixels": 0},
        {"prescreen": {"max_nsfw": 1.5}},
        {"prescreen": {"max_nsfw_score": 0.5}},
        {"prescreen": {"min_clip": 0.5}},
        {"heads": {"mine": {"kind": "own"}}},
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClipSettings.model_validate(values)


def test_a_heads_kind_gives_its_column_and_its_functions() -> None:
    aesthetic, nsfw, own = (HeadSettings(path="x", kind=kind) for kind in ("aesthetic", "nsfw", "own"))
    heads = {"taste": aesthetic, "safe": nsfw, "mine": own}
    columns = {"aesthetic_score": "taste", "nsfw_clip_score": "safe", "mine": "mine"}
    assert ClipSettings(heads=heads).head_columns == columns
    assert (aesthetic.hidden_activation, aesthetic.output_squash) == ("none", "none")
    assert (nsfw.hidden_activation, nsfw.output_squash) == ("relu", "sigmoid")
    assert (own.hidden_activation, own.output_squash) == ("none", "none")
    logits = HeadSettings(path="x", kind="nsfw", output="none")
    assert (logits.hidden_activation, logits.output_squash) == ("relu", "none")


def test_two_heads_of_one_kind_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"\['a', 'b'\] are all of kind aesthetic"):
        ClipSettings(heads={name: HeadSettings(path="x", kind="aesthetic") for name in ("a", "b")})


@pytest.mark.parametrize("name", ["clip_score", "sample_id", "aesthetic_score", "sharpness", "two words", ""])
def test_an_own_head_needs_a_name_that_can_be_a_column(name: str) -> None:
    with pytest.raises(ValidationError, match="needs a name that is free"):
        ClipSettings(heads={name: HeadSettings(path="x")})


def test_settings_and_the_public_functions_load_no_torch() -> None:
    code = (
        "import sys, interleaved_assets.scoring.clip.stream, interleaved_assets.scoring.clip.settings as module;"
        "module.ClipSettings();"
        "sys.exit(any(name.partition('.')[0] in ('torch', 'open_clip', 'torchvision') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def load_without_torch() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # as where it is not installed
    load_scorer(ClipSettings())


def test_a_worker_without_torch_names_the_extra(tmp_path: Path) -> None:
    code, printed = run_forked(load_without_torch, output=tmp_path / "printed")
    assert code == 1
    assert "MissingDependency: CLIP scoring needs" in printed
    assert "pip install '.[clip]' in a checkout of this package, or pip install '<its wheel>[clip]'" in printed
