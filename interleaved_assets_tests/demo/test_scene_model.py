"""The checkpoint in ``data/models``: it knows the captions of scenes it never saw, at the threshold of the settings."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from PIL import Image

from interleaved_assets.demo.prose import paragraph, pick_topic
from interleaved_assets.demo.scenes import draw_scene

MODELS: Final = Path(__file__).parents[2] / "data" / "models"
CHECKPOINT: Final = MODELS / "scenes-clip.safetensors"
COUNT: Final = 60
SEED: Final = (77, 4)  # training draws from [1, number] and its own evaluation from [2, 0]
SIZES: Final = ((320, 240), (240, 320), (400, 300), (300, 400), (480, 200))
FORMATS: Final = ("JPEG", "PNG", "WEBP", "TIFF")
THRESHOLD: Final = 0.15  # the default of the settings


@dataclass(frozen=True)
class HeldOut:
    """Cosines of ``COUNT`` scenes: with every caption, and with as many texts that describe no scene."""

    captions: list[str]
    caption_cosine: np.ndarray
    prose_cosine: np.ndarray

    @property
    def matching(self) -> np.ndarray:
        """Of each scene with its own caption."""
        return np.diag(self.caption_cosine)

    @property
    def differ(self) -> np.ndarray:
        """Where row and column are scenes with different captions."""
        captions = np.array(self.captions)
        return captions[:, None] != captions[None]


@pytest.fixture(scope="module")
def held_out() -> HeldOut:
    # no importorskip: selected by its mark, this test fails where torch or open_clip is missing
    import open_clip
    import torch

    open_clip.add_model_config(MODELS / "scenes-clip.json")
    model, _, preprocess = open_clip.create_model_and_transforms("scenes-clip", pretrained=str(CHECKPOINT))
    model.eval()
    tokenizer = open_clip.get_tokenizer("scenes-clip")
    rng = np.random.default_rng(SEED)
    pictures, captions = [], []
    for number in range(COUNT):
        scene = draw_scene(rng, *SIZES[number % len(SIZES)])
        buffer = io.BytesIO()
        Image.fromarray(scene.image).save(buffer, FORMATS[number // len(SIZES) % len(FORMATS)])
        pictures.append(preprocess(Image.open(buffer)))
        captions.append(scene.caption)
    texts = [paragraph(rng, pick_topic(rng), 20) for _ in range(COUNT)]
    with torch.inference_mode():
        image = model.encode_image(torch.stack(pictures), normalize=True)
        text = model.encode_text(tokenizer(captions + texts), normalize=True)
        cosine = (image @ text.T).numpy()
    return HeldOut(captions, cosine[:, :COUNT], cosine[:, COUNT:])


@pytest.mark.system
@pytest.mark.torch
def test_a_scene_ranks_its_own_caption_above_nine_others(held_out: HeldOut) -> None:
    rng = np.random.default_rng(0)
    first = 0
    for number, own in enumerate(held_out.matching):
        nine = rng.choice(np.flatnonzero(held_out.differ[number]), 9, replace=False)
        first += int(own > held_out.caption_cosine[number, nine].max())
    assert first / COUNT >= 0.97


@pytest.mark.system
@pytest.mark.torch
def test_the_default_threshold_parts_matching_captions_from_swapped_ones(held_out: HeldOut) -> None:
    assert np.mean(held_out.matching >= THRESHOLD) >= 0.97
    assert np.mean(held_out.caption_cosine[held_out.differ] >= THRESHOLD) <= 0.05


@pytest.mark.system
@pytest.mark.torch
def test_texts_that_describe_no_scene_lie_below_the_threshold(held_out: HeldOut) -> None:
    assert np.mean(held_out.prose_cosine >= THRESHOLD) <= 0.05


def test_checkpoint_is_small_enough_for_the_repository() -> None:
    assert CHECKPOINT.stat().st_size < 16e6
