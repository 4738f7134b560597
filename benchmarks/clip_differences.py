"""How far the scores are from plain open_clip's, one image and one text at a time in fp32, on the CPU.

    python -m benchmarks.clip_differences                        # the model that the repository ships, 32 drawings
    python -m benchmarks.clip_differences --images 47 --folder photos
    python -m benchmarks.clip_differences --write docs/clip.md

Prints for each precision and each way of scaling the largest difference of a clip_score.
"""

import argparse
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
import open_clip
import pyarrow as pa
import torch
from open_clip.transform import image_transform_v2
from PIL import Image

from benchmarks.clip import WORDS, photo
from benchmarks.figures import markdown_table, replace_figures
from interleaved_assets.scoring.clip import ClipSettings, load_scorer, score_table

MODELS = Path(__file__).parents[1] / "data" / "models"
LIMITS = {
    ("fp32", "pillow"): 1e-6,
    ("fp32", "torch"): 1e-3,
    ("fp32", "reduced"): 2e-2,
    ("bf16", "pillow"): 1.5e-3,
    ("bf16", "torch"): 1.5e-3,
}


def samples(images: list[bytes]) -> pa.Table:
    """A sample of one text for each image."""
    random = np.random.default_rng(1)
    rows = []
    for number, image in enumerate(images):
        rows.append((str(number), 0, "text", "a drawing of " + " ".join(random.choice(WORDS, 8)), None))
        rows.append((str(number), 1, "image", None, image))
    names = ("sample_id", "position", "modality", "text_content", "binary_content")
    types = (pa.string(), pa.int32(), pa.string(), pa.string(), pa.large_binary())
    columns = [pa.array(values, dtype) for values, dtype in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, names=names)


def plain_scores(settings: ClipSettings, table: pa.Table) -> np.ndarray:
    """Cosine similarities as open_clip's documentation computes them."""
    model = load_scorer(settings).embedder.model
    transform = image_transform_v2(model.preprocess_config, is_train=False)
    rows = table.to_pylist()
    scores = []
    for text, image in zip(rows[::2], rows[1::2], strict=True):
        with torch.inference_mode():
            pixels = transform(Image.open(BytesIO(image["binary_content"])))
            vector = model.module.encode_image(pixels[None], normalize=True)
            other = model.module.encode_text(model.tokenizer([text["text_content"]]), normalize=True)
            scores.append(float((vector @ other.T)[0, 0]))
    return np.array(scores)


def shipped_settings() -> ClipSettings:
    """The model that the repository ships, on the CPU."""
    return ClipSettings(
        enabled=True,
        model="scenes",
        pretrained=str(MODELS / "scenes-clip.safetensors"),
        model_config_path=str(MODELS / "scenes-clip.json"),
        device="cpu",
        threads=2,
        allow_demo_model=True,
    )


def differences(
    images: list[bytes], settings: ClipSettings, ways: Iterable[tuple[str, str]] = tuple(LIMITS)
) -> dict[tuple[str, str], float]:
    """The largest difference from the plain scores, by precision and way of scaling."""
    table = samples(images)
    wanted = plain_scores(settings.model_copy(update={"precision": "fp32"}), table)
    found = {}
    for precision, resize in ways:
        scorer = load_scorer(settings.model_copy(update={"precision": precision, "resize": resize}))
        scores = score_table(table, scorer)["clip_score"].to_numpy()
        found[precision, resize] = float(np.abs(scores - wanted).max())
    return found


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32, help="images (default 32)")
    parser.add_argument("--folder", type=Path, help="of JPEG files (default none: drawn)")
    parser.add_argument("--model", default="scenes", help="open_clip model (default the shipped one)")
    parser.add_argument("--pretrained", help="weights of another model: a tag, or a file")
    parser.add_argument("--write", type=Path, help="Markdown page whose table is to be replaced")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    if options.folder:
        images = [path.read_bytes() for path in sorted(options.folder.glob("*.jp*g"))[: options.images]]
    else:
        images = [photo(random, 640, 480) for _ in range(options.images)]
    settings = shipped_settings()
    if options.model != "scenes":
        given = {"model": options.model, "pretrained": options.pretrained, "model_config_path": None}
        settings = settings.model_copy(update=given)
    print(f"{len(images)} images, {options.model}, torch {torch.__version__}, open_clip {open_clip.__version__}")
    found = differences(images, settings)
    for way, difference in found.items():
        print(f"{way[0]}  resize = {way[1]:<7} {difference:.1e}  (limit {LIMITS[way]:.1e})")
    if options.write:
        sizes = dict.fromkeys(resize for _, resize in found)
        rows = [
            [precision, *(f"{found[precision, size]:.1e}" if (precision, size) in found else "" for size in sizes)]
            for precision in dict.fromkeys(precision for precision, _ in found)
        ]
        table = markdown_table(["", *(f'`resize = "{size}"`' for size in sizes)], rows)
        replace_figures(options.write, "differences", table)


if __name__ == "__main__":
    main()
