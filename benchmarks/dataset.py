"""Seeded shards in the form of MINT-1T PDF: a ``<key>.json`` and a multi-frame ``<key>.tiff`` for each document.

The same pictures come in three forms: ``raw`` holds them as uncompressed TIFF frames, ``jpeg`` as JPEG inside TIFF,
``members`` as members of their own, plain JPEG. The pictures are drawn, but their spectrum is that of photographs
(amplitude falling with about the frequency, sensor noise, edges), so that neither Snappy nor a JPEG encoder finds them
easier than a photo. Texts are made-up words.

    python -m benchmarks.dataset --output build/bench --form raw
"""

import argparse
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from PIL import Image

Form = Literal["raw", "jpeg", "members"]
FORMS: tuple[Form, ...] = get_args(Form)

CANVAS_SIDE = 1536  # pixels; pictures are windows cut out of a few canvases of this side
CANVASES = 4
JPEG_QUALITY = 80
ASPECT_RATIOS = (4 / 3, 3 / 2, 16 / 9, 1.0, 3 / 4, 5 / 2)
ASPECT_WEIGHTS = (0.38, 0.34, 0.12, 0.08, 0.05, 0.03)  # the last two fall outside the filter's 1.0 to 2.0
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "jen", "kil", "lor", "mus", "nat", "per", "qui", "ros", "sed", "tur")


@dataclass(frozen=True)
class DatasetSize:
    """Size of the data; the targets of the benchmark are for the defaults."""

    shards: int = 6
    samples: int = 85
    longer_shards: int = 0
    """How many of the shards, the first ones, have one document more."""
    seed: int = 20240717
    mean_pixels: int = 130_000
    """Mean size of a picture; 85 documents of 2 pictures of 3 bytes a pixel make shards of 67 MB."""

    def samples_of(self, shard: int) -> int:
        """Documents of the shard with this number."""
        return self.samples + (shard < self.longer_shards)

    def folder(self, work: Path) -> Path:
        """``work`` for the defaults, else a folder in it: what reads all shards of a folder gets those of one size."""
        return work if self == DatasetSize() else work / f"{self.shards}-shards-{self.samples}-samples"


def canvas(rng: np.random.Generator, side: int = CANVAS_SIDE) -> np.ndarray:
    """A picture of ``(side, side, 3)`` uint8 with the spectrum of a photograph, some edges and sensor noise."""
    luma = 128 + 45 * _falling_noise(rng, side, 1.2)
    blue, red = (18 * _falling_noise(rng, side, 1.5) for _ in range(2))
    rows, columns = np.mgrid[0:side, 0:side]
    for _ in range(60):
        y, x, radius = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(20, 140)
        inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
        luma[inside] += rng.uniform(-50, 50)
    luma += 4 * rng.standard_normal(luma.shape)
    picture = np.stack([luma + red, luma - 0.5 * red - 0.3 * blue, luma + blue], axis=-1)
    return picture.clip(0, 255).astype(np.uint8)


def _falling_noise(rng: np.random.Generator, side: int, falloff: float) -> np.ndarray:
    """Noise of mean 0 and deviation 1 whose amplitude falls with ``frequency ** falloff``, ``(side, side)`` float64."""
    spectrum = np.fft.rfft2(rng.standard_normal((side, side)))
    distance = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    distance[0, 0] = 1
    noise = np.fft.irfft2(spectrum / distance**falloff, s=(side, side))
    return (noise - noise.mean()) / noise.std()


def picture_size(rng: np.random.Generator, mean_pixels: int) -> tuple[int, int]:
    """Width and height of a picture: an area around the mean, and an aspect ratio of cameras."""
    ratio = rng.choice(ASPECT_RATIOS, p=ASPECT_WEIGHTS)
    pixels = mean_pixels * rng.gamma(4.0, 0.25)
    height = int(np.clip((pixels / ratio) ** 0.5, 48, CANVAS_SIDE // 2.5))
    return int(height * ratio), height


def tiff_bytes(pictures: list[Image.Image], form: Form) -> bytes:
    """A TIFF with one frame per picture."""
    assert form != "members"
    options = {} if form == "raw" else {"compression": "jpeg", "quality": JPEG_QUALITY}
    buffer = io.BytesIO()
    pictures[0].save(buffer, format="TIFF", save_all=True, append_images=pictures[1:], **options)
    return buffer.getvalue()


def paragraph(rng: np.random.Generator, words: int) -> str:
    """Made-up words, two or three syllables each."""
    parts = rng.choice(SYLLABLES, size=(words, 3))
    return " ".join("".join(row[: 2 + index % 2]) for index, row in enumerate(parts)).capitalize() + "."


def document(
    rng: np.random.Generator, key: str, canvases: list[np.ndarray], mean_pixels: int, form: Form
) -> dict[str, bytes]:
    """One document: its members by name, the JSON first."""
    texts: list[str | None] = []
    images: list[str | None] = []
    image_metadata = []
    pictures = []
    for page in range(int(rng.integers(1, 5))):
        for _ in range(int(rng.integers(1, 4))):
            texts.append(paragraph(rng, int(rng.integers(40, 160))))
            images.append(None)
        if page and rng.random() < 0.3:
            continue
        width, height = picture_size(rng, mean_pixels)
        xref = int(rng.integers(10, 400))
        top, left = rng.integers(0, CANVAS_SIDE - height), rng.integers(0, CANVAS_SIDE - width)
        chosen = canvases[int(rng.integers(len(canvases)))]
        pictures.append(Image.fromarray(chosen[top : top + height, left : left + width]))
        texts.append(None)
        images.append(f"{key}.{len(images)}.jpg" if form == "members" else f"page_{page}_image_{xref}")
        digest = rng.bytes(32).hex()  # of the original, which in MINT-1T does not match the frame either
        image_metadata.append({"height": height, "page": page, "sha256": digest, "width": width, "xref": xref})
    words = sum(len(text.split()) for text in texts if text)
    payload = {
        "texts": texts,
        "images": images,
        "image_metadata": image_metadata,
        "pdf_name": f"{key}.pdf",
        "url": f"https://example.org/{key}.pdf",
        "language_id_whole_page_fasttext": {"en": round(float(rng.uniform(0.8, 1.0)), 4)},
        "previous_word_count": words,
        "bff_contained_ngram_count_before_dedupe": int(rng.integers(0, 20)),
    }
    members = {f"{key}.json": json.dumps(payload).encode()}
    if form != "members":
        return members | {f"{key}.tiff": tiff_bytes(pictures, form)}
    names = [name for name in images if name is not None]
    return members | {name: jpeg_bytes(picture) for name, picture in zip(names, pictures, strict=True)}


def jpeg_bytes(picture: Image.Image) -> bytes:
    """A JPEG file of one picture."""
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def write_shard(
    path: Path, shard: int, canvases: list[np.ndarray], size: DatasetSize, form: Form, samples: int | None = None
) -> int:
    """Write one tar and return its size in bytes; its documents depend on the seed and the shard's number alone."""
    rng = np.random.default_rng([size.seed, shard])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        for _ in range(samples or size.samples_of(shard)):
            key = rng.bytes(16).hex()
            for name, data in document(rng, key, canvases, size.mean_pixels, form).items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    unfinished.rename(path)
    return path.stat().st_size


def draw_canvases(seed: int) -> list[np.ndarray]:
    """The canvases from which all pictures of a set are cut."""
    return [canvas(np.random.default_rng([seed, 1_000_000 + number])) for number in range(CANVASES)]


def ensure_dataset(folder: Path, form: Form, size: DatasetSize | None = None) -> list[Path]:
    """The tars of one form below ``folder``; missing ones are made."""
    size = size or DatasetSize()
    paths = [folder / f"{form}-seed{size.seed}" / f"shard-{number:05d}.tar" for number in range(size.shards)]
    if not all(path.exists() for path in paths):
        canvases = draw_canvases(size.seed)
        for number, path in enumerate(paths):
            write_shard(path, number, canvases, size, form)
    return paths


def main() -> None:
    """Make a set and print its size."""
    parser = argparse.ArgumentParser(description="Make the benchmark's shards.")
    parser.add_argument("--output", type=Path, required=True, help="folder to put them in")
    parser.add_argument("--form", choices=FORMS, default="raw")
    parser.add_argument("--shards", type=int, default=6, help="number of shards (default 6)")
    parser.add_argument("--samples", type=int, default=85, help="documents in each (default 85)")
    options = parser.parse_args()
    paths = ensure_dataset(options.output, options.form, DatasetSize(options.shards, options.samples))
    total = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} shards, {total / 1e6:.0f} MB, in {paths[0].parent}")


if __name__ == "__main__":
    main()
