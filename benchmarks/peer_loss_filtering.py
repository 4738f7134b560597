"""Loss cases of filtering and writing; see ``peer_loss_reading``."""

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from PIL import Image

from benchmarks.peer_loss_inputs import (
    Case,
    Outcome,
    attempt,
    encoded,
    image_document,
    image_rows,
    make_tar,
    members_of,
    picture,
    rows_with_gaps,
    tar_json,
)
from benchmarks.peer_loss_sides import Side


def failed_fetch(side: Side, folder: Path) -> Outcome:
    """A failed fetch inside a filter counts as an ordinary drop."""
    tar = make_tar(folder / "shard.tar", image_document(a=encoded(picture(1))))
    batches = side.read([tar], lazy=True)
    tar.rename(folder / "moved.tar")
    if image_rows(side.rows(batches))[0]["binary_content"] is not None:
        return Outcome(False, "the filter fetches nothing: the image was read with its document")
    return _explained(side, batches, "aspect")


def undecodable_image(side: Side, folder: Path) -> Outcome:
    """An image that OpenCV cannot decode counts as blurry."""
    tar = make_tar(folder / "shard.tar", image_document(a=encoded(picture(1))[:200]))
    return _explained(side, side.read([tar]), "blur")


def detector_error(side: Side, folder: Path) -> Outcome:
    """An error of OpenCV's QR detector counts as "no QR code"."""
    tar = make_tar(folder / "shard.tar", image_document(a=encoded(picture(1))))
    with opencv_detector_raises():
        return _explained(side, side.read([tar]), "qr")


@contextmanager
def opencv_detector_raises() -> Iterator[None]:
    """OpenCV's QR detector raises within the block.

    It does so on real images, by its random numbers: see issues 24011 and 27807 of opencv/opencv.
    """
    original = cv2.QRCodeDetector

    class Raising:
        def detectMulti(self, _image: Any) -> Any:  # noqa: N802  # OpenCV's name
            error = cv2.error()
            error.err = "Seed point is outside of image"
            raise error

        detectAndDecodeMulti = detectMulti  # noqa: N815  # OpenCV's name

    cv2.QRCodeDetector = Raising
    try:
        yield
    finally:
        cv2.QRCodeDetector = original


def _explained(side: Side, batches: list[Any], kind: str) -> Outcome:
    """Whether a filter reports that it could not judge the one image."""
    filtered, failure = attempt(lambda: side.filter(batches, kind))
    if failure:
        return Outcome(False, f"stops: {failure}")
    kept = image_rows(side.rows(filtered))
    said = [row["materialize_error"] for row in kept if row["materialize_error"]] + side.said()
    seen = f"the image is {'kept' if kept else 'dropped'}, "
    return Outcome(not said, seen + (f"with `{said[0]}`" if said else "and nothing says that it was not judged"))


def filter_that_keeps_all(side: Side, _folder: Path) -> Outcome:
    """A filter that keeps everything renumbers positions, reorders samples and deletes documents without content."""
    filtered = side.filter(side.batches(rows_with_gaps()), "aspect")
    before, after = (
        [f"{row['sample_id']}:{row['position']}" for row in rows]
        for rows in (rows_with_gaps().to_pylist(), side.rows(filtered))
    )
    return Outcome(
        before != after, f"`{' '.join(before)}` → " + ("the same" if before == after else f"`{' '.join(after)}`")
    )


def other_modalities(side: Side, _folder: Path) -> Outcome:
    """`table` and `audio` rows are dropped by every filter."""
    modalities = pa.array(["metadata", "table", "audio", "metadata", "text", "metadata"])
    table = rows_with_gaps().set_column(2, "modality", modalities)
    kept = {row["modality"] for row in side.rows(side.filter(side.batches(table), "aspect"))} & {"table", "audio"}
    return Outcome(len(kept) < 2, f"{len(kept)} of 2 rows kept")


def image_metadata(side: Side, folder: Path) -> Outcome:
    """`image_metadata` is not filtered with its images."""
    members = image_document(a=encoded(picture(1)), b=encoded(picture(2, (480, 16))))
    members["doc.json"] = dict(members["doc.json"], image_metadata=[{"xref": 1}, {"xref": 2}])
    filtered = side.filter(side.read([make_tar(folder / "shard.tar", members)]), "aspect")
    written = tar_json(side.write(filtered, folder / "out"))[0]
    images = [token for token in written["images"] if token]
    entries = written["image_metadata"]
    entries = json.loads(entries) if isinstance(entries, str) else entries
    return Outcome(
        len(entries) != len(images), f"images left: {len(images)}; entries of `image_metadata`: {len(entries)}"
    )


def filters_read_again(side: Side, folder: Path) -> Outcome:
    """Every filter reads its images again."""
    tar = make_tar(folder / "shard.tar", image_document(a=encoded(picture(1))))
    batches = side.read([tar], lazy=True)
    with opens_of(tar) as opens:
        for kind in ("aspect", "blur", "qr"):
            batches = side.filter(batches, kind)
    return Outcome(len(opens) > 1, f"opens of the tar by three filters in a row, after a lazy read: {len(opens)}")


@contextmanager
def opens_of(path: Path) -> Iterator[list[str]]:
    """One entry for every time that this process opens ``path`` within the block."""
    seen: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and str(arguments[0]) == str(path):
            seen.append(event)

    sys.addaudithook(hook)  # cannot be taken away again, only put to rest
    yield seen
    watching = False


def half_written(side: Side, folder: Path) -> Outcome:
    """Files are written straight to the final path."""
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    batches = side.read([make_tar(folder / "shard.tar", image_document(a=encoded(Image.fromarray(noise))))])
    with largest_file(100_000):
        _, failure = attempt(lambda: side.write(batches, folder / "out"))
    left = [path for path in (folder / "out").rglob("*") if path.is_file()]
    names = ", ".join(f"a `{path.suffix}` of {path.stat().st_size} bytes" for path in left)
    seen = f"a write that fails at 100 kB ({failure.split(':')[0]}) leaves {names or 'nothing'}"
    return Outcome(bool(left) or "File too large" not in failure, seen)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes within the block: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def overwrite(side: Side, folder: Path) -> Outcome:
    """Mode `overwrite` deletes the output folder, in the constructor."""
    stranger = folder / "out" / "notes.txt"
    stranger.parent.mkdir()
    stranger.write_text("somebody else's")
    side.writer(stranger.parent, "wds", "overwrite")
    return Outcome(not stranger.exists(), f"another file in the folder is {'kept' if stranger.exists() else 'deleted'}")


def dotted_sample_ids(side: Side, folder: Path) -> Outcome:
    """Sample ids `a.b` and `a.c` share one WebDataset key."""
    table = rows_with_gaps().slice(0, 5).set_column(0, "sample_id", pa.array(["a.b"] * 3 + ["a.c"] * 2))
    names = list(members_of(side.write(side.batches(table), folder / "out")))
    keys = {name.split(".")[0] for name in names}  # a WebDataset key ends at the first dot
    return Outcome(len(keys) < 2, f"{', '.join(f'`{name}`' for name in names)}: {len(keys)} of 2 keys")


FILTERING_AND_WRITING: list[Case] = [
    failed_fetch,
    undecodable_image,
    detector_error,
    filter_that_keeps_all,
    other_modalities,
    image_metadata,
    filters_read_again,
    half_written,
    overwrite,
    dotted_sample_ids,
]
