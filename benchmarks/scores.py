"""Cost of scoring and selection: ms for an image of 1000 x 800, seconds for decisions on 100,000 stored scores.

python -m benchmarks.scores [--images 60] [--threads 1 2]
"""

import argparse
import time
from collections.abc import Callable

import cv2
import numpy as np
import pyarrow as pa

from benchmarks.dataset import canvas
from interleaved_assets.model.ledger import check_balance, drop_reasons
from interleaved_assets.scoring import ScoringSettings, score_images
from interleaved_assets.selection import SelectionSettings, select

ROUNDS = 5


def best_of(action: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs, after a warm-up."""
    action()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def photographs(count: int, seed: int = 20240719) -> pa.Table:
    """Image rows: windows of drawn photographs as JPEG."""
    rng = np.random.default_rng(seed)
    pictures, contents = [canvas(rng) for _ in range(3)], []
    for number in range(count):
        top, left = rng.integers(0, 1536 - 800), rng.integers(0, 1536 - 1000)
        window = pictures[number % 3][top : top + 800, left : left + 1000]
        contents.append(cv2.imencode(".jpg", window, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes())
    return pa.table(
        {
            "sample_id": [f"document-{number // 4}" for number in range(count)],
            "position": pa.array([number % 4 for number in range(count)], pa.int32()),
            "modality": ["image"] * count,
            "binary_content": pa.array(contents, pa.large_binary()),
        }
    )


def stored(images: int, seed: int = 20240720) -> tuple[pa.Table, pa.Table]:
    """Rows of documents with four texts and four images each, and scores of their images, 1 % of them missing."""
    rng = np.random.default_rng(seed)
    documents, kinds = images // 4, ["metadata", *["text", "image"] * 4]
    modality = np.tile(kinds, documents)
    sample_ids = np.repeat([f"{number:032x}" for number in range(documents)], len(kinds))
    rows = pa.table(
        {
            "sample_id": pa.array(sample_ids, pa.string()),
            "position": pa.array(np.tile(np.arange(-1, 8), documents), pa.int32()),
            "modality": pa.array(modality, pa.string()),
            "words": pa.array(rng.integers(0, 60, len(modality)), mask=modality != "text"),
        }
    )
    missing = rng.random(images) < 0.01
    keys = rows.filter(pa.array(modality == "image")).select(["sample_id", "position"])
    columns = {
        "sharpness": pa.array(rng.lognormal(6, 1, images), mask=missing),
        "qr_area_ratio": pa.array(np.where(rng.random(images) < 0.05, 0.2, 0.0), mask=missing),
        "clip_score": pa.array(rng.normal(0.22, 0.05, images), mask=missing),
        "score_error": pa.array(np.where(missing, "undecodable_image: image file is truncated", None), pa.string()),
    }
    for name, column in columns.items():
        keys = keys.append_column(name, column)
    return rows, keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60, help="images to score (default 60)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--stored", type=int, default=100_000, help="stored scores to decide on (default 100000)")
    arguments = parser.parse_args()

    rows = photographs(arguments.images)
    print("| scored | " + " | ".join(f"{threads} threads" for threads in arguments.threads) + " |")
    for scorers in ((), ("sharpness",), ("qr",), ("sharpness", "qr"), ("sharpness", "qr", "thumbnail")):
        settings = ScoringSettings(scorers=scorers)
        times = [
            1e3 * best_of(lambda s=settings, t=threads: score_images(rows, s, threads=t)) / arguments.images
            for threads in arguments.threads
        ]
        name = " + ".join(("decoding", *scorers)) if scorers else "size from the header"
        print(f"| {name} | " + " | ".join(f"{each:.2f} ms" for each in times) + " |")

    rows, scores = stored(arguments.stored)
    settings = SelectionSettings(on_score_error="drop_row", max_ratio=0.2, on_fail={"qr": "sample"})
    shuffled = scores.take(np.random.default_rng(0).permutation(scores.num_rows))
    selection = select(rows, scores, settings)
    check_balance("benchmark", rows.num_rows, selection.keep.true_count, selection.ledger)
    print(f"\n{scores.num_rows} stored image scores, {rows.num_rows} rows: {drop_reasons(selection.ledger)}")
    print(f"decided in {best_of(lambda: select(rows, scores, settings)):.3f} s")
    print(f"scores in another order than the rows: {best_of(lambda: select(rows, shuffled, settings)):.3f} s")


if __name__ == "__main__":
    main()
