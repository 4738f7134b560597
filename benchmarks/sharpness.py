"""Sharpness measures compared: does a threshold hold at every resolution? Writes docs/sharpness.md.

    python -m benchmarks.sharpness --photos PHOTOS.tar --write docs/sharpness.md

Pictures are the demo's drawn scenes and the photograph that Matplotlib ships; ``--photos`` adds tars with photographs,
images or TIFF with several frames. Each picture is measured sharp and out of focus (a Gaussian of 0.4, 0.6 and 0.8 % of
its short side), each of these as it is, enlarged twice and reduced to half. Balanced accuracy is the mean of the shares
of sharp ones kept and blurred ones dropped, at the best threshold and at the given one.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import matplotlib
import numpy as np

from benchmarks.figures import markdown_table, replace_figures
from benchmarks.qr import photographs_in
from interleaved_assets.demo.pictures import sharp
from interleaved_assets.scoring.images.decode import BgrImage
from interleaved_assets.scoring.scores.sharpness import sharpness, sharpness_256

SIZES = ((400, 300), (640, 480), (1200, 900), (300, 400), (900, 700))
BLURS = (0.004, 0.006, 0.008)
SCALES = {"as it is": 1.0, "enlarged twice": 2.0, "reduced to half": 0.5}
MEASURES: dict[str, tuple[Callable[[BgrImage], float], tuple[float, ...]]] = {
    "`sharpness`": (sharpness, (100.0,)),
    "`sharpness_256`": (sharpness_256, (100.0, 150.0)),
}
"""The measures, each with thresholds: that of NeMo Curator; the former and the present one of the shipped settings."""


class Case(NamedTuple):
    """One picture, sharp or blurred, at one scale: its values by measure."""

    picture: int
    blur: float
    scale: str
    values: dict[str, float]


def drawings(count: int, seed: int) -> Iterator[BgrImage]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        yield sharp(rng, *SIZES[number % len(SIZES)]).image[..., ::-1].copy()


def photographs(tars: list[Path]) -> Iterator[BgrImage]:
    shipped = cv2.imread(str(Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")))
    assert shipped is not None
    yield shipped
    for tar in tars:
        yield from photographs_in(tar)


def cases(images: Iterator[BgrImage]) -> Iterator[Case]:
    for number, image in enumerate(images):
        for blur in (0.0, *BLURS):
            seen = cv2.GaussianBlur(image, (0, 0), blur * min(image.shape[:2])) if blur else image
            for name, scale in SCALES.items():
                scaled = seen
                if scale != 1:
                    way = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
                    scaled = cv2.resize(seen, None, fx=scale, fy=scale, interpolation=way)
                yield Case(number, blur, name, {key: measure(scaled) for key, (measure, _) in MEASURES.items()})


def balanced_accuracy(sharp_ones: np.ndarray, blurred: np.ndarray, threshold: float) -> float:
    return float((np.mean(sharp_ones >= threshold) + np.mean(blurred < threshold)) / 2)


def rows(found: list[Case]) -> Iterator[list[str]]:
    for name, (_, thresholds) in MEASURES.items():
        plain = [case for case in found if case.scale == "as it is"]
        value = {(case.picture, case.blur, case.scale): case.values[name] for case in found}
        enlarged = [(value[case.picture, case.blur, "enlarged twice"], case.values[name]) for case in plain]
        sharp_ones = np.array([case.values[name] for case in found if not case.blur])
        blurred = np.array([case.values[name] for case in found if case.blur])
        candidates = np.unique(np.concatenate([sharp_ones, blurred]))
        best = max(candidates, key=lambda at: balanced_accuracy(sharp_ones, blurred, at))
        for threshold in thresholds:
            flipped = sum((one >= threshold) != (other >= threshold) for one, other in enlarged)
            lost = np.mean([one < threshold for case, (one, _) in zip(plain, enlarged, strict=True) if not case.blur])
            yield [
                name,
                f"{threshold:g}",
                f"{flipped} of {len(enlarged)}",
                f"{lost:.0%}",
                f"{np.mean(sharp_ones >= threshold):.3f}",
                f"{balanced_accuracy(sharp_ones, blurred, threshold):.3f}",
                f"{balanced_accuracy(sharp_ones, blurred, best):.3f} at {best:.0f}",
                " · ".join(f"{np.percentile(sharp_ones, at):.0f}" for at in (1, 5, 50)),
                " · ".join(f"{np.percentile(blurred, at):.0f}" for at in (50, 95, 99)),
            ]


HEAD = [
    "measure",
    "threshold",
    "flip when enlarged",
    "sharp ones lost enlarged",
    "sharp ones kept",
    "balanced accuracy",
    "best",
    "sharp, percentiles 1 · 5 · 50",
    "blurred, 50 · 95 · 99",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, nargs="*", default=[], help="tars with photographs")
    parser.add_argument("--count", type=int, default=12, help="drawings (default 12)")
    parser.add_argument("--seed", type=int, default=20240718)
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are to be replaced")
    arguments = parser.parse_args()
    parts = []
    for title, images in (
        (f"{arguments.count} drawings", drawings(arguments.count, arguments.seed)),
        ("photographs", photographs(arguments.photos)),
    ):
        found = list(cases(images))
        number = len({case.picture for case in found})
        parts += [f"**{title}** ({number} pictures, {len(found)} cases)", markdown_table(HEAD, rows(found))]
    report = "\n\n".join(parts)
    print(report)
    if arguments.write:
        replace_figures(arguments.write, "figures", report)


if __name__ == "__main__":
    main()
