"""Plain JPEGs to pixels on the model's device, several in one call of torchvision's decoder; others are for the host.

On a GPU the decoder is nvJPEG, on a CPU libjpeg-turbo. What becomes of an image never depends on it: a file that it
refuses is decoded on the host, whose decoder says what is wrong with it.
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from io import BytesIO
from typing import Final

import numpy as np
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from interleaved_assets.io.batches import parts_within
from interleaved_assets.model.errors import ImageError, MissingDependency, SettingsError
from interleaved_assets.scoring.clip.identity import reason_of
from interleaved_assets.scoring.clip.image import Preprocess, scaled_size
from interleaved_assets.scoring.clip.samples import Pixels
from interleaved_assets.scoring.containers import Buffer, bytes_of
from interleaved_assets.scoring.size import exif_orientation, open_header

logger = logging.getLogger(__name__)

_START: Final = b"\xff\xd8\xff"
# A file without this end may be truncated, and not every decoder says so.
_END: Final = b"\xff\xd9"
_START_OF_SCAN: Final = 0xDA
# What stands before the scan of a baseline or progressive JPEG: its frame, tables, comments and applications' data.
_PLAIN_MARKERS: Final = frozenset({0xC0, 0xC2, 0xC4, _START_OF_SCAN, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE})
_YCBCR_IDS: Final = ([1, 2, 3], [0, 1, 2])
# Sampling factors, across and down, of the brightness, where those of the colours are 1: 4:4:4, 4:2:2, 4:2:0, 4:4:0.
_SAMPLINGS: Final = ((1, 1), (2, 1), (2, 2), (1, 2))
_YCBCR_OF_ADOBE: Final = 1

# Pixels decoded in one call, unless a single image has more: 100 MB. The scaling takes 12 bytes a pixel besides, for
# one image at a time.
_PIXELS_AT_ONCE: Final = 2**25


class DevicePreprocess:
    """From the bytes of JPEGs to pixels, decoded, turned upright and scaled on a device.

    Its colours may differ from those of ``host``, which decodes all other images, by what two decoders differ; sizes,
    orientation and crop are the same.

    Raises:
        MissingDependency: torchvision has no decoder for the device.
        SettingsError: the model sees images in another way than scaled by the shortest side and cropped to a square.
    """

    def __init__(self, host: Preprocess, device: torch.device) -> None:
        if host.side is None:
            raise SettingsError(
                "clip.decode = 'device': the model scales images in a way that is done on the host only; set "
                "clip.decode = 'host'"
            )
        self._host, self._side, self._device = host, host.side, device
        # The decoder writes on a stream of its own, which does not wait for the caller's, into memory that work queued
        # on the caller's may still read. On this stream nothing is queued when the decoder is called: each use of it,
        # by one thread at a time, ends with a copy to the host that waits.
        is_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_gpu else None
        self._alone = threading.Lock() if is_gpu else contextlib.nullcontext()
        self._has_warned = False
        _check_decoder(device)

    def __call__(self, files: Sequence[Buffer]) -> list[Pixels | None]:
        """The pixels of each file, as :class:`Preprocess` returns them; None where it is for the host to decode.

        Safe to call from several threads. Want of memory on the device is raised as torch raises it.
        """
        found: list[Pixels | None] = [None] * len(files)
        headers = {index: header for index, data in enumerate(files) if (header := self._plain_header(data))}
        sizes = np.array([header.width * header.height for header in headers.values()])
        for part in parts_within(sizes, _PIXELS_AT_ONCE):
            indices = list(headers)[part]
            with torch.inference_mode(), self._alone, torch.cuda.stream(self._stream):
                decoded = self._decoded([files[index] for index in indices])
                for index, image in zip(indices, decoded, strict=True):
                    header = headers[index]
                    if image is not None and image.shape == (3, header.height, header.width):
                        upright = _turned(image, exif_orientation(header))
                        found[index] = self._scaled(upright).cpu().numpy()
        return found

    def _plain_header(self, data: Buffer) -> JpegImageFile | None:
        """The header of a JPEG that the device may decode, None of any other file.

        It is baseline or progressive, of 8 bits, grey or YCbCr with the usual subsampling, with one frame and an end.
        """
        view = bytes_of(data)
        if view[:3] != _START or view[-2:] != _END or not _has_plain_markers(view):
            return None
        try:
            header = open_header(data, max_pixels=self._host.max_pixels)
        except ImageError:
            return None  # the host says what is wrong
        if (
            type(header) is not JpegImageFile  # a JPEG with several pictures has a type of its own
            or header.width * header.height > self._host.max_pixels
            or not self._host.is_for_torch(*header.size)
            or header.info.get("adobe_transform", _YCBCR_OF_ADOBE) != _YCBCR_OF_ADOBE
        ):
            return None
        # the components of all its frames
        ids, samplings = [layer[0] for layer in header.layer], [layer[1:3] for layer in header.layer]
        is_ycbcr = ids in _YCBCR_IDS and samplings[0] in _SAMPLINGS and samplings[1:] == [(1, 1), (1, 1)]
        return header if len(ids) == 1 or is_ycbcr else None

    def _decoded(self, files: list[Buffer]) -> list[torch.Tensor | None]:
        """Red-green-blue, 3 x height x width, uint8; None for a file that the decoder refuses."""
        try:
            return list(_decode(files, self._device))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if len(files) == 1:
                if not self._has_warned:  # were it all files, the device would be idle
                    self._has_warned = True
                    logger.warning(
                        "clip.decode = 'device': torchvision refused a JPEG on %s, and the host decodes it, as it will "
                        "all others that are refused: %s",
                        self._device,
                        reason_of(error),
                    )
                return [None]
        # the call does not say which one it was
        return [image for file in files for image in self._decoded([file])]

    def _scaled(self, image: torch.Tensor) -> torch.Tensor:
        """The middle of an image, height x width x 3, uint8."""
        (width, height), (left, top) = scaled_size(image.shape[2], image.shape[1], self._side)
        # across and then down, rounding in between as Pillow does; a GPU has this interpolation in floating point only
        for size in (image.shape[1], width), (height, width):
            if size != image.shape[1:]:
                values = torch.nn.functional.interpolate(
                    image.unsqueeze(0).float(), size, mode=self._host.config.interpolation, antialias=True
                )
                image = values[0].round_().clamp_(0, 255).to(torch.uint8)
        cropped = image[:, top : top + self._side, left : left + self._side]
        return cropped.permute(1, 2, 0).contiguous()


def _has_plain_markers(data: memoryview) -> bool:
    """Whether all markers up to the scan of a JPEG are those of a baseline or progressive one."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] in _PLAIN_MARKERS:
        if data[at + 1] == _START_OF_SCAN:
            return True
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _turned(image: torch.Tensor, orientation: int) -> torch.Tensor:
    """An image, 3 x height x width, upright by its EXIF orientation."""
    if orientation >= 5:
        image = image.transpose(1, 2)
    across, down = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)
    return image.flip([dim for dim, is_flipped in ((2, across), (1, down)) if is_flipped])


def _decode(files: list[Buffer], device: torch.device) -> list[torch.Tensor]:
    from torchvision.io import ImageReadMode, decode_jpeg

    tensors = [torch.from_numpy(np.frombuffer(file, np.uint8).copy()) for file in files]
    images: list[torch.Tensor] = decode_jpeg(tensors, mode=ImageReadMode.RGB, device=device)
    return images


def _check_decoder(device: torch.device) -> None:
    """Decode a small image of one colour; raise MissingDependency where that does not work."""
    colour = (200, 100, 50)
    buffer = BytesIO()
    Image.new("RGB", (16, 16), colour).save(buffer, "JPEG", quality=95)
    try:
        (image,) = _decode([buffer.getvalue()], device)
    except (ImportError, RuntimeError) as error:
        raise MissingDependency(
            f"clip.decode = 'device': this torchvision decodes no JPEG on {device}: {reason_of(error)}. Install a "
            "torchvision with its decoder, or set clip.decode = 'host'"
        ) from error
    found = image.float().mean(dim=(1, 2))
    if (found.cpu() - torch.tensor(colour)).abs().max() > 4:
        raise MissingDependency(
            f"clip.decode = 'device': torchvision decodes a JPEG of the colour {colour} as {found.tolist()} on "
            f"{device}; set clip.decode = 'host'"
        )
