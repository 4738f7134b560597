"""Measure ``scenes-clip`` on scenes it was not trained on, loaded as any user of open_clip would load it.

    python data/models/evaluate.py [CHECKPOINT]

Prints how often a scene ranks its own caption first of ten, percentiles of the cosine similarity, and what each
threshold keeps and drops.
"""

import dataclasses
import io
import sys
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import open_clip
import torch
from PIL import Image

from interleaved_assets.demo.backdrops import LANDSCAPES, PAPERS
from interleaved_assets.demo.prose import paragraph, pick_topic
from interleaved_assets.demo.scenes import COLOURS, PLACES, RELATIONS, Composition, draw_scene
from interleaved_assets.demo.shapes import SHAPES

HERE: Final = Path(__file__).parent
SEED: Final = (2, 0)  # training draws from [1, number]
COUNT: Final = 1000
SIZES: Final = ((320, 240), (400, 300), (300, 400), (480, 360), (450, 600), (900, 260), (800, 600))
FORMATS: Final = ("JPEG", "PNG", "WEBP", "TIFF")
_T = TypeVar("_T")
THRESHOLDS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35)


def evaluate(checkpoint: Path) -> None:
    """Print the figures of ``checkpoint``."""
    open_clip.add_model_config(HERE / "scenes-clip.json")
    model, _, preprocess = open_clip.create_model_and_transforms("scenes-clip", pretrained=str(checkpoint))
    model.eval()
    tokenizer = open_clip.get_tokenizer("scenes-clip")

    @torch.inference_mode()
    def embed(texts: list[str]) -> np.ndarray:
        return model.encode_text(tokenizer(texts), normalize=True).numpy()

    rng = np.random.default_rng(SEED)
    pictures, captions, compositions = [], [], []
    for number in range(COUNT):
        scene = draw_scene(rng, *SIZES[number % len(SIZES)])
        buffer = io.BytesIO()
        Image.fromarray(scene.image).save(buffer, FORMATS[number // len(SIZES) % len(FORMATS)])
        pictures.append(preprocess(Image.open(buffer)))
        captions.append(scene.caption)
        compositions.append(scene.composition)
    with torch.inference_mode():
        image = model.encode_image(torch.stack(pictures), normalize=True).numpy()

    cosine = image @ embed(captions).T
    own = np.diag(cosine)
    differ = np.array(captions)[:, None] != np.array(captions)[None]
    best_of_nine = [
        cosine[row, rng.choice(np.flatnonzero(differ[row]), 9, replace=False)].max() for row in range(COUNT)
    ]
    print(f"own caption first of 10: {np.mean(own > best_of_nine):.1%} of {COUNT}")
    print(f"own caption first of {COUNT}: {np.mean(own >= cosine.max(axis=1)):.1%}")

    swapped = cosine[differ]
    prose = image @ embed([paragraph(rng, pick_topic(rng), 20) for _ in range(COUNT)]).T
    shares = (0.1, 1, 5, 50, 95, 99, 99.9)
    print(f"{'percentile':12}" + "".join(f"{share:8g}" for share in shares))
    for name, values in (("own", own), ("swapped", swapped), ("prose", prose)):
        print(f"{name:12}" + "".join(f"{value:+8.3f}" for value in np.percentile(values, shares)))
    for threshold in THRESHOLDS:
        lost, kept = np.mean(own < threshold), np.mean(swapped >= threshold)
        print(f"threshold {threshold:.2f}: {lost:7.2%} of own captions lost, {kept:7.2%} of swapped captions kept")
    for attribute in ("colour", "shape", "count", "place", "backdrop"):
        wrong = [_one_wrong(rng, composition, attribute).caption for composition in compositions]
        near = (image * embed(wrong)).sum(axis=1)
        print(f"{attribute} wrong: median {np.median(near):+.3f}, below the own caption {np.mean(near < own):.1%}")


def _one_wrong(rng: np.random.Generator, composition: Composition, attribute: str) -> Composition:
    """``composition`` with another value of one attribute (of the first group, where it is one of a group)."""
    first, *others = composition.groups
    match attribute:
        case "place":
            places = list(RELATIONS if others else PLACES)[: 5 if first.count > 1 else None]
            return dataclasses.replace(composition, place=_another(rng, places, composition.place))
        case "backdrop":
            return dataclasses.replace(
                composition, backdrop=_another(rng, [*PAPERS, *LANDSCAPES], composition.backdrop)
            )
        case "count":
            first = dataclasses.replace(first, count=_another(rng, [1, 2, 3], first.count), size="")
        case "colour":
            first = dataclasses.replace(first, colour=_another(rng, list(COLOURS), first.colour))
        case _:
            first = dataclasses.replace(first, shape=_another(rng, list(SHAPES), first.shape))
    return dataclasses.replace(composition, groups=(first, *others))


def _another(rng: np.random.Generator, values: list[_T], value: _T) -> _T:
    remaining = [candidate for candidate in values if candidate != value]
    return remaining[int(rng.integers(len(remaining)))]


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "scenes-clip.safetensors")
