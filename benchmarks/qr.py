"""QR detectors compared: recall, false positives, milliseconds an image. Writes the tables of docs/qr-detectors.md.

    python -m benchmarks.qr --photos PATH/TO/qr --negatives PATH/TO/photos.tar --write docs/qr-detectors.md

``--photos`` is a folder with photographs of QR codes at any depth (PNG or JPEG; beside a picture an ``output.json`` in
the form of jsQR's tests may say where its code is), ``--negatives`` tars with photographs without codes, images or TIFF
with several frames. Both may be left out: the drawn pages need no file. ZBar needs Debian's libzbar0.
"""

import argparse
import io
import json
import platform
import tarfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
import zxingcpp
from PIL import Image as PillowImage

from benchmarks.figures import markdown_table, replace_figures
from benchmarks.qr_pages import SHARES, Corners, Image, draw_photographs, variants, without_codes
from interleaved_assets.model.errors import ImageError, MissingDependency
from interleaved_assets.scoring.scores.qr import (
    find_with_opencv,
    find_with_zbar,
    find_with_zxing_and_aruco,
)

SAME_CODE = 0.5  # intersection over union from which a found quadrilateral counts as the code
THRESHOLD = 0.05
Find = Callable[[Image], list[Corners]]


def zxing_alone(image: Image, *, return_errors: bool = False) -> list[Corners]:
    """zxing-cpp with the codes that it reads, and with ``return_errors`` those that it finds and cannot read."""
    found = zxingcpp.read_barcodes(
        cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), formats=zxingcpp.BarcodeFormat.QRCode, return_errors=return_errors
    )
    places = (code.position for code in found)
    return [
        np.array([(p.x, p.y) for p in (q.top_left, q.top_right, q.bottom_right, q.bottom_left)], np.float32)
        for q in places
    ]


def opencv_decoding(image: Image) -> list[Corners]:
    """OpenCV's detectAndDecodeMulti, which NeMo Curator calls."""
    found, _, corners, _ = cv2.QRCodeDetector().detectAndDecodeMulti(image)
    return list(corners) if found else []


def opencv_aruco(image: Image) -> list[Corners]:
    """OpenCV's second detector, by ArUco markers."""
    found, corners = cv2.QRCodeDetectorAruco().detectMulti(image)
    return list(corners) if found else []


def zxing_then_aruco(image: Image) -> list[Corners]:
    """A cascade that is not gated: OpenCV's second detector searches every image in which zxing-cpp read nothing."""
    return zxing_alone(image) or opencv_aruco(image)


FINDERS: dict[str, Find] = {
    "**zxing+aruco**": find_with_zxing_and_aruco,
    "zxing": zxing_alone,
    "zxing, unreadable codes too": partial(zxing_alone, return_errors=True),
    "**opencv**": find_with_opencv,
    "opencv, decoding as well": opencv_decoding,
    "opencv, ArUco": opencv_aruco,
    "**zbar**": find_with_zbar,
    "cascade, not gated": zxing_then_aruco,
}


@dataclass
class Tally:
    """The results of one detector on one set of images."""

    codes: int = 0
    found: int = 0
    images: int = 0
    dropped: int = 0
    """Number of images that the default threshold would drop."""
    invented: int = 0
    """Number of images with a quadrilateral that is not a code."""
    failed: int = 0
    """Number of images on which the detector raised an error."""
    seconds: list[float] = field(default_factory=list)

    def add(self, find: Find, image: Image, codes: list[Corners] | None) -> None:
        """Search one image; ``codes`` None: it has a code at an unknown place."""
        started = time.perf_counter()
        try:
            found = find(image)
        except (ImageError, cv2.error):
            self.failed, found = self.failed + 1, []
        self.seconds.append(time.perf_counter() - started)
        self.images += 1
        self.dropped += sum(map(cv2.contourArea, found)) / (image.shape[0] * image.shape[1]) >= THRESHOLD
        if codes is None:
            self.codes, self.found = self.codes + 1, self.found + bool(found)
            return
        self.codes += len(codes)
        self.found += sum(any(overlap(code, other) >= SAME_CODE for other in found) for code in codes)
        self.invented += any(all(overlap(code, other) < SAME_CODE for code in codes) for other in found)

    @property
    def recall(self) -> str:
        return f"{100 * self.found / self.codes:.0f} %" if self.codes else "–"

    @property
    def milliseconds(self) -> str:
        return f"{1e3 * float(np.median(self.seconds)):.1f}"


def overlap(one: Corners, other: Corners) -> float:
    """Intersection over union of two quadrilaterals."""
    one, other = (cv2.convexHull(np.asarray(corners, np.float32)) for corners in (one, other))
    common, _ = cv2.intersectConvexConvex(one, other)
    union = cv2.contourArea(one) + cv2.contourArea(other) - common
    return common / union if union else 0.0


def photographs_with_codes(folder: Path) -> Iterator[tuple[Image, list[Corners] | None]]:
    """Each picture below ``folder``, with the place of its code where a file beside it has it."""
    names = ("topLeftCorner", "topRightCorner", "bottomRightCorner", "bottomLeftCorner")
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg", ".jpeg")):
        beside, codes = path.with_name("output.json"), None
        if beside.exists() and (said := json.loads(beside.read_text())):
            corners = [(said["location"][name]["x"], said["location"][name]["y"]) for name in names]
            codes = [np.array(corners, np.float32)]
        yield cv2.imread(str(path), cv2.IMREAD_COLOR), codes


def photographs_in(tar: Path) -> Iterator[Image]:
    """Each image in a tar, each frame of a TIFF."""
    with tarfile.open(tar) as archive:
        for member in archive:
            if not member.name.endswith((".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff")):
                continue
            file = archive.extractfile(member)
            assert file is not None
            picture = PillowImage.open(io.BytesIO(file.read()))
            for frame in range(getattr(picture, "n_frames", 1)):
                picture.seek(frame)
                yield np.asarray(picture.convert("RGB"))[..., ::-1].copy()


def measure(finders: dict[str, Find], images: Iterable[tuple[Image, list[Corners] | None]]) -> dict[str, Tally]:
    """All detectors on the same images, in turn."""
    tallies: dict[str, Tally] = {name: Tally() for name in finders}
    for image, codes in images:
        for name, find in finders.items():
            tallies[name].add(find, image, codes)
    return tallies


def compare(arguments: argparse.Namespace) -> Iterator[str]:
    """The tables, as Markdown."""
    finders = dict(FINDERS)
    try:
        find_with_zbar(np.zeros((8, 8, 3), np.uint8))
    except MissingDependency as missing:
        print(f"without zbar: {missing}")
        del finders["**zbar**"]
    rng = np.random.default_rng(arguments.seed)
    drawn = draw_photographs(rng)

    if arguments.photos:
        real = measure(finders, photographs_with_codes(arguments.photos))
        count = next(iter(real.values())).images
        yield f"**{count} real photographs with QR codes**, 177 to 500 pixels wide, codes bent, dirty or tiny."
        yield markdown_table(
            ["detector", "found", "dropped at 0.05", "ms an image"],
            (
                [name, f"{tally.found} of {count}", str(tally.dropped), tally.milliseconds]
                for name, tally in real.items()
            ),
        )

    by_share: dict[float, dict[str, Tally]] = {}
    by_variant: dict[str, dict[str, Tally]] = {}
    pages: dict[str, Tally] = {name: Tally() for name in finders}
    for variant, draw in variants(drawn).items():
        for share in SHARES:
            tallies = measure(finders, (draw(rng, share) for _ in range(arguments.count)))
            for name, tally in tallies.items():
                merge(by_variant.setdefault(variant, defaultdict(Tally))[name], tally)
                merge(by_share.setdefault(share, defaultdict(Tally))[name], tally)
                merge(pages[name], tally)
    total = next(iter(pages.values()))
    yield (
        f"**{total.images} drawn pages of 1000 × 800 with {total.codes} codes**: share of the codes found, by the area "
        "of the code ÷ area of the page (of all four where there are four)."
    )
    yield markdown_table(
        [
            "detector",
            *(f"{share:.0%}" for share in SHARES),
            "all",
            "pages with a code that is none",
            "raised",
            "ms a page",
        ],
        (
            [
                name,
                *(by_share[share][name].recall for share in SHARES),
                tally.recall,
                str(tally.invented),
                str(tally.failed),
                tally.milliseconds,
            ]
            for name, tally in pages.items()
        ),
    )
    yield "The same pages by how the code is shown (all sizes together):"
    yield markdown_table(
        ["shown", *finders],
        ([variant, *(tallies[name].recall for name in finders)] for variant, tallies in by_variant.items()),
    )

    kinds: dict[str, dict[str, Tally]] = {}
    for kind, image in without_codes(rng, drawn, arguments.count * 2):
        for name, tally in measure(finders, [(image, [])]).items():
            merge(kinds.setdefault(kind, defaultdict(Tally))[name], tally)
    for tar in arguments.negatives:
        kinds[f"real, {tar.name}"] = measure(finders, ((image, []) for image in photographs_in(tar)))
    yield "**Images without QR codes**: how many of them a detector finds a code in, and ms an image."
    yield markdown_table(
        ["images", "number", *finders],
        (
            [kind, str(next(iter(tallies.values())).images)]
            + [f"{tallies[name].invented} ({tallies[name].milliseconds} ms)" for name in finders]
            for kind, tallies in kinds.items()
        ),
    )
    yield (
        f"OpenCV {cv2.__version__}, zxing-cpp {version('zxing-cpp')}, one thread, median times, "
        f"Python {platform.python_version()}, seed {arguments.seed}."
    )


def merge(into: Tally, added: Tally) -> None:
    for name in ("codes", "found", "images", "dropped", "invented", "failed"):
        setattr(into, name, getattr(into, name) + getattr(added, name))
    into.seconds += added.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder with photographs of QR codes")
    parser.add_argument("--negatives", type=Path, nargs="*", default=[], help="tars with photographs without QR codes")
    parser.add_argument("--count", type=int, default=20, help="drawn pages for each size and variant (default 20)")
    parser.add_argument("--seed", type=int, default=20240718)
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are to be replaced")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    report = "\n\n".join(compare(arguments))
    print(report)
    if arguments.write:
        replace_figures(arguments.write, "figures", report)


if __name__ == "__main__":
    main()
