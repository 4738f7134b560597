from collections.abc import Callable
from dataclasses import asdict, replace
from io import BytesIO

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

pytest.importorskip("open_clip")
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2

from interleaved_assets.model.errors import ImageError
from interleaved_assets.scoring.clip.image import Preprocess
from interleaved_assets_tests.scoring.clip_tiny import picture

pytestmark = pytest.mark.torch

CONFIG = PreprocessCfg(size=64)


def preprocess(resizer: str = "pillow", **config: object) -> Preprocess:
    return Preprocess(replace(CONFIG, **config), resizer)  # type: ignore[arg-type]  # a Literal


def normalized(pixels: np.ndarray, config: PreprocessCfg = CONFIG) -> torch.Tensor:
    """What the device makes of the pixels."""
    values = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float().div(255)
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in (config.mean, config.std))
    return (values - mean) / std


def plain(data: bytes, config: PreprocessCfg = CONFIG) -> torch.Tensor:
    return image_transform_v2(config, is_train=False)(Image.open(BytesIO(data)))


def file(image: Image.Image, image_format: str, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


SIZES = [(90, 60), (60, 90), (64, 64), (65, 64), (63, 200), (7, 5), (1, 1), (500, 12), (1200, 3)]


@pytest.mark.parametrize(
    ("image_format", "mode"),
    [
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("PNG", "RGB"),
        ("PNG", "L"),
        ("PNG", "LA"),
        ("PNG", "RGBA"),
        ("PNG", "P"),
        ("PNG", "1"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("WEBP", "RGBA"),
        ("TIFF", "RGB"),
        ("TIFF", "CMYK"),
        ("BMP", "RGB"),
    ],
)
def test_values_are_bit_for_bit_those_of_open_clips_transform(image_format: str, mode: str) -> None:
    scale = preprocess()
    for number, (width, height) in enumerate(SIZES):
        data = picture(number, width, height, image_format, mode)
        assert torch.equal(normalized(scale(data)), plain(data)), (width, height)


@pytest.mark.parametrize(
    "config",
    [
        {"interpolation": "bilinear"},
        {"resize_mode": "squash"},
        {"resize_mode": "longest", "fill_color": 127},
        {"size": (48, 64)},
        {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
    ],
)
@pytest.mark.parametrize("resizer", ["pillow", "torch"])
def test_other_ways_of_a_model_to_see_images(config: dict[str, object], resizer: str) -> None:
    whole = PreprocessCfg(**(asdict(CONFIG) | config))
    for width, height in ((90, 60), (60, 90), (20, 30)):
        data = picture(1, width, height)
        found = preprocess(resizer, **config)(data)
        assert found.shape == (*preprocess(**config).height_width, 3)
        steps = (normalized(found, whole) - plain(data, whole)).abs() * torch.tensor(whole.std).view(3, 1, 1) * 255
        # with torch a grey level here and there, with Pillow none
        assert steps.max() <= (0 if resizer == "pillow" else 2.1)


def test_torch_differs_from_pillow_by_a_grey_level_here_and_there() -> None:
    for number, (width, height) in enumerate([(900, 700), (300, 500), (64, 64), (40, 70)]):
        data = picture(number, width, height)
        exact, quick = preprocess("pillow")(data).astype(int), preprocess("torch")(data).astype(int)
        assert np.abs(exact - quick).max() <= 1
        assert (exact != quick).mean() < 0.02


def test_a_line_is_scaled_without_the_part_that_the_crop_throws_away() -> None:
    data = picture(3, 20_000, 3, "PNG")
    for resizer in ("pillow", "torch"):
        found = preprocess(resizer)(data)
        assert found.shape == (64, 64, 3)
        # the middle of the picture, one 300th of its width
        middle = np.asarray(Image.open(BytesIO(data)).crop((9998, 0, 10_002, 3)))
        assert np.abs(found.mean(axis=(0, 1)) - middle.mean(axis=(0, 1))).max() < 6


def test_a_large_jpeg_is_decoded_in_a_part_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    decode = cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda data, flag: flags.append(flag) or decode(data, flag))
    reduced = preprocess("reduced")
    for number, (side, part) in enumerate([(255, 1), (256, 2), (511, 2), (512, 4), (1024, 8), (2100, 8)]):
        data = picture(number, side + 41, side)
        found, whole = reduced(data).astype(int), preprocess("torch")(data).astype(int)
        assert (
            flags[-2] & ~cv2.IMREAD_IGNORE_ORIENTATION
            == {
                1: cv2.IMREAD_COLOR,
                2: cv2.IMREAD_REDUCED_COLOR_2,
                4: cv2.IMREAD_REDUCED_COLOR_4,
                8: cv2.IMREAD_REDUCED_COLOR_8,
            }[part]
        )
        assert np.abs(found - whole).mean() < (1.5 if part > 1 else 1e-9)


def test_other_images_are_not_reduced() -> None:
    for data in (picture(1, 700, 600, "PNG"), picture(2, 700, 600, "JPEG", "L"), picture(3, 5000, 600)):
        assert np.array_equal(preprocess("reduced")(data), preprocess("torch")(data))


@pytest.mark.parametrize("resizer", ["pillow", "torch", "reduced"])
@pytest.mark.parametrize(("image_format", "mode"), [("JPEG", "RGB"), ("PNG", "RGBA")])
def test_an_image_is_seen_the_way_its_orientation_says(resizer: str, image_format: str, mode: str) -> None:
    image = Image.open(BytesIO(picture(4, 90, 60, "PNG", mode)))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = file(image, image_format, exif=exif)
    opened = Image.open(BytesIO(turned))
    upright = ImageOps.exif_transpose(opened)
    wanted = image_transform_v2(CONFIG, is_train=False)(upright)
    difference = (normalized(preprocess(resizer)(turned)) - wanted).abs().max()
    assert difference <= (0 if resizer == "pillow" else 0.016)


def test_sixteen_bits_become_eight_and_not_white() -> None:
    grey = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    found = preprocess()(file(Image.fromarray(grey), "PNG"))
    assert np.abs(found[..., 0].astype(int) - grey // 256).max() <= 1


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: b"", "undecodable_image"),
        (lambda data: b"no image at all", "undecodable_image"),
        (lambda data: data[: len(data) // 2], "undecodable_image"),
        (lambda data: file(Image.new("RGB", (200, 200)), "PNG"), "too_many_pixels"),
        (lambda data: file(Image.new("RGBA", (200, 200)), "PNG"), "too_many_pixels"),
        (lambda data: file(Image.new("RGBA", (90, 90), (1, 2, 3, 4)), "PNG")[:-40], "undecodable_image"),
    ],
    ids=["empty", "text", "half", "large", "large with alpha", "half with alpha"],
)
def test_what_cannot_be_decoded_says_why(damage: Callable[[bytes], bytes], code: str) -> None:
    small = Preprocess(CONFIG, "pillow", max_pixels=10_000)
    with pytest.raises(ImageError) as caught:
        small(damage(picture(0)))
    assert caught.value.code == code
