"""Agreement with nemo-curator 1.4.0: sharpness, aspect ratio, and the decisions of its blur, aspect and ratio filters.

    python -m benchmarks.peer_scores --peer-python build/peer/bin/python --tars SHARD.tar …

Every image of the shards is compared as it stands and once more as PNG, TIFF, WebP and JPEG of its pixels. Thresholds
are the peer's defaults and values in the middle of what occurs. Exits with 1 where sharpness differs by more than 1e-6
(1 % on JPEG) or a decision differs. See README.md for the peer's environment.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader
from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring import ScoringSettings, score_images
from interleaved_assets.scoring.images.decode import decode_image
from interleaved_assets.selection import SelectionSettings, select
from interleaved_assets.selection.batch import selection_rows

ENCODINGS = {
    "PNG": (".png", []),
    "TIFF": (".tiff", []),
    "WebP": (".webp", [cv2.IMWRITE_WEBP_QUALITY, 80]),
    "JPEG": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 90]),
}
TOLERANCE = {"JPEG": 1e-2}
EXACT = 1e-6


def encoded(rows: pa.Table, suffix: str, options: list[int]) -> pa.Table:
    """``rows`` with every image encoded again; images that cannot be decoded are unchanged."""
    contents = []
    for content in rows["binary_content"].to_pylist():
        try:
            contents.append(content and cv2.imencode(suffix, decode_image(content), options)[1].tobytes())
        except ImageError:
            contents.append(content)
    place = rows.column_names.index("binary_content")
    return rows.set_column(place, "binary_content", pa.array(contents, pa.large_binary()))


def variants(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows as they are and in every encoding."""
    yield "as it stands", rows
    for name, (suffix, options) in ENCODINGS.items():
        yield name, encoded(rows, suffix, options)


def ask_peer(python: Path, rows: pa.Table, request: dict[str, object]) -> dict[str, list]:
    """The peer's scores and decisions on ``rows``."""
    script = Path(__file__).with_name("peer_scores_worker.py")
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(rows, file.name)
        question = json.dumps({"rows": file.name, **request})
        done = subprocess.run([python, script], input=question, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{script.name} ended with status {done.returncode}; see its messages above")
    return json.loads(done.stdout.splitlines()[-1])


def decisions(rows: pa.Table, scores: pa.Table, **settings: object) -> np.ndarray:
    """One bool for each row: whether one of our filters keeps it."""
    chosen = SelectionSettings(on_score_error="drop_row", **settings)
    return np.array(select(selection_rows(rows), scores, chosen).keep.to_pylist())


def compare(rows: pa.Table, python: Path) -> dict[str, float]:
    """For one table: largest relative difference of sharpness and of aspect ratio, decisions, decisions that differ."""
    scores = score_images(rows, ScoringSettings(scorers=("sharpness",)))
    ours = scores["sharpness"].to_numpy()
    middle = [float(np.nanquantile(ours, share)) for share in (0.1, 0.25, 0.5, 0.75)]
    blur = [100.0, *(value * factor for value in middle for factor in (1 - 1e-5, 1 + 1e-5))]
    aspect = [[1.0, 2.0], [0.5, 1.2], [1.3, 1.6]]
    ratio = [[0.0, float("inf")], [0.0, 0.05], [0.01, 0.1], [0.0, 0.005]]
    peer = ask_peer(python, rows, {"blur": blur, "aspect": aspect, "ratio": ratio})

    is_image = pc.equal(rows["modality"], "image").to_numpy()
    judged = differing = 0

    def count(own: np.ndarray, others: list[bool], where: np.ndarray) -> None:
        nonlocal judged, differing
        judged += int(where.sum())
        differing += int((own != np.array(others))[where].sum())

    for threshold, mask in zip(blur, peer["blur"], strict=True):
        count(decisions(rows, scores, order=("sharpness",), min_sharpness=threshold), mask, is_image)
    for (low, high), mask in zip(aspect, peer["aspect"], strict=True):
        own = decisions(rows, scores, order=("aspect",), min_aspect_ratio=low, max_aspect_ratio=high)
        count(own, mask, is_image)
    for (low, high), mask in zip(ratio, peer["ratio"], strict=True):
        own = decisions(rows, scores, order=("ratio",), min_ratio=low, max_ratio=high)
        count(own, mask, np.ones(len(is_image), dtype=bool))
    return {
        "images": len(ours),
        "unscored": int(np.isnan(ours).sum()),
        "sharpness": difference(ours, peer["sharpness"]),
        "aspect": difference(scores["aspect_ratio"].to_numpy(), peer["aspect_ratio"]),
        "judged": judged,
        "differing": differing,
    }


def difference(ours: np.ndarray, theirs: list[float | None]) -> float:
    """The largest relative difference; infinite where only one side has a value."""
    others = np.array([np.nan if value is None else value for value in theirs])
    if not np.array_equal(np.isnan(ours), np.isnan(others)):
        return float("inf")
    return float(np.nanmax(np.abs(ours - others) / np.maximum(np.abs(others), 1e-9)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, required=True, help="interpreter of the peer's environment")
    parser.add_argument("--tars", nargs="+", required=True, help="shards")
    arguments = parser.parse_args()
    failed = False
    print("| shard | images | unscored | sharpness, largest difference | aspect ratio | decisions | that differ |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for tar in arguments.tars:
        batches = list(InterleavedWebdatasetReader(tar, materialize_on_read=True))
        rows = pa.concat_tables([batch.to_pyarrow() for batch in batches], promote_options="permissive")
        for name, table in variants(rows):
            found = compare(table, arguments.peer_python)
            failed |= found["sharpness"] > TOLERANCE.get(name, EXACT) or found["differing"] > 0
            print(
                f"| {Path(tar).name}, {name} | {found['images']} | {found['unscored']} | {found['sharpness']:.1e} "
                f"| {found['aspect']:.1e} | {found['judged']} | {found['differing']} |",
                flush=True,
            )
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
