"""The embedding of pixels and tokens in batches on a device; batches become smaller when its memory runs out."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import open_clip
import torch

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.model import ClipModel
from interleaved_assets.scoring.clip.samples import Pixels, Tokens, Vector

logger = logging.getLogger(__name__)


class Launched:
    """Rows that the device may still be computing.

    Their copy to the host is queued before the next batch.
    """

    def __init__(self, rows: torch.Tensor, precision: str) -> None:
        self._precision, self._rows = precision, rows
        self._arrived: torch.cuda.Event | None = None
        if rows.is_cuda:
            self._rows = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            self._rows.copy_(rows, non_blocking=True)
            # blocking: the waiting thread sleeps, and leaves its core to the decoders
            self._arrived = torch.cuda.Event(blocking=True)
            self._arrived.record(torch.cuda.current_stream(rows.device))

    def result(self) -> Vector:
        """Wait for the rows and return them: embeddings, those of images followed by the scores of the heads."""
        if self._arrived is not None:
            self._arrived.synchronize()
        rows = self._rows.numpy()
        if not np.isfinite(rows).all():
            raise SettingsError(
                f"clip.precision: the model gives values that are not finite in {self._precision}; choose 'bf16' or "
                "'fp32', and see whether the checkpoint is sound"
            )
        return rows


class Embedder:
    """A model with its heads, and the number of items that it gets at once.

    Attributes:
        batch_size: images, or texts, at once. Halved for good when the device runs out of memory.
        is_on_cpu: whether it computes on the cores that decoding uses too.
        width: number of values of an embedding.
    """

    def __init__(self, model: ClipModel, batch_size: int | None = None, heads: Sequence[torch.nn.Module] = ()) -> None:
        self.model = model
        self.is_on_cpu = model.device.type == "cpu"
        self.batch_size = batch_size or (32 if self.is_on_cpu else 256)
        self.width = model.width
        self._heads = [head.to(model.device) for head in heads]
        config = model.preprocess_config
        self._mean, self._std = torch.tensor([config.mean, config.std], device=model.device).view(2, 1, 3, 1, 1)
        # Padding behind a text's end marker cannot change its embedding if attention looks back only and the embedding
        # is taken at the end marker, the largest id of all. Then padding can be left out. OpenAI's architecture, which
        # open_clip's plain CLIP class has, works this way.
        module = model.module
        self._is_trimmable = (
            type(module) is open_clip.CLIP and module.text_pool_type == "argmax" and module.attn_mask is not None
        )

    def pixel_buffer(self) -> Pixels:
        """Return a buffer for :meth:`images`, :attr:`batch_size` x height x width x 3, page-locked if there is a GPU.

        The host does not wait for a copy from page-locked memory to the device.
        """
        shape = (self.batch_size, *self.model.preprocess_config.input_size[1:], 3)
        return torch.empty(shape, dtype=torch.uint8, pin_memory=not self.is_on_cpu).numpy()

    def images(self, pixels: Pixels) -> Launched:
        """Start embedding images, n x height x width x 3, and scoring them by the heads.

        ``pixels`` must not change until the result is read.
        """
        host = torch.from_numpy(pixels)

        def embed(part: slice) -> torch.Tensor:
            batch = host[part].to(self.model.device, non_blocking=True).permute(0, 3, 1, 2)
            # in this order, and in float32, as torchvision's to_tensor and normalize do it
            values = (
                batch.to(torch.float32, memory_format=torch.contiguous_format).div(255).sub(self._mean).div(self._std)
            )
            embeddings = self.model.module.encode_image(values)
            embeddings = torch.nn.functional.normalize(embeddings.float(), dim=-1)
            return torch.cat([embeddings, *(head(embeddings) for head in self._heads)], dim=1)

        return self._launch(embed, len(pixels))

    def texts(self, tokens: Sequence[Tokens]) -> Launched:
        """Start embedding token sequences; consecutive ones should have similar lengths."""
        module = self.model.module

        def embed(part: slice) -> torch.Tensor:
            rows = [torch.from_numpy(row.astype(np.int64)) for row in tokens[part]]
            host = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            if not self._is_trimmable:
                missing = max(0, self.model.tokenizer.context_length - host.shape[1])
                host = torch.nn.functional.pad(host, (0, missing))
            batch = host if self.is_on_cpu else host.pin_memory().to(self.model.device, non_blocking=True)
            embeddings = _encode_trimmed(module, batch) if self._is_trimmable else module.encode_text(batch)
            return torch.nn.functional.normalize(embeddings.float(), dim=-1)

        return self._launch(embed, len(tokens))

    def _launch(self, embed: Callable[[slice], torch.Tensor], count: int) -> Launched:
        parts: list[torch.Tensor] = []
        start = 0
        with torch.inference_mode():
            while start < count:
                size = min(self.batch_size, count - start)
                try:
                    parts.append(embed(slice(start, start + size)))
                    start += size
                    continue
                except torch.OutOfMemoryError:
                    if size == 1:
                        raise
                # outside of the except clause: inside it, the exception still holds the tensors of the failed attempt
                self.batch_size = size // 2
                logger.warning(
                    "out of memory on %s with a batch of %d: going on with %d. Set clip.batch_size to %d to start "
                    "there.",
                    self.model.device_name,
                    size,
                    self.batch_size,
                    self.batch_size,
                )
                torch.cuda.empty_cache()
            return Launched(torch.cat(parts), self.model.precision)


def _encode_trimmed(module: open_clip.CLIP, tokens: torch.Tensor) -> torch.Tensor:
    """Return ``module.encode_text(tokens)`` for tokens that are shorter than the context, n x length.

    A caption of 20 tokens takes a third of the time that it takes when padded to 77.
    """
    length = tokens.shape[1]
    dtype = module.transformer.get_cast_dtype()
    hidden = module.token_embedding(tokens).to(dtype) + module.positional_embedding[:length].to(dtype)
    hidden = module.ln_final(module.transformer(hidden, attn_mask=module.attn_mask[:length, :length]))
    at_end = hidden[torch.arange(len(tokens), device=tokens.device), tokens.argmax(dim=-1)]
    projection = module.text_projection
    if projection is None:
        return at_end
    return projection(at_end) if isinstance(projection, torch.nn.Linear) else at_end @ projection
