"""The lists of texts and image URLs of a document as ordered blocks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat, zip_longest
from typing import Any, Final, NamedTuple

from interleaved_assets.io.rows.blocks import Block
from interleaved_assets.io.tar.json_columns import json_text
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import is_unicode

SIMILARITY: Final = "matched_sim"
"""Passthrough column of MMC4: the CLIP similarity of an image to its sentence."""


class UrlLists(NamedTuple):
    """Parallel lists of texts and image URLs: at each place one of them is None, or the text comes first."""

    texts: Sequence[Any]
    images: Sequence[Any]
    similarities: Sequence[float | None] = ()
    """For each image that is not None, in order; empty if the document has none."""
    per_text: Mapping[str, Sequence[Any]] = {}
    """Values of passthrough columns for each text that is not None, by column."""
    per_image: Mapping[str, Sequence[Any]] = {}
    """The same for each image that is not None."""


def blocks_of(lists: UrlLists, locators: Mapping[str, str], *, has_store: bool) -> list[Block]:
    """Return the texts and images in their order.

    An image has a locator, or the error ``image_not_in_store``. A text that is no string gets ``invalid_text``, an
    image that is no string ``invalid_token``.

    Args:
        lists: the content of the document.
        locators: places of images in the store, by URL.
        has_store: whether there is a store; only the wording of errors depends on it.
    """
    blocks: list[Block] = []
    of_texts, of_images = _spread(lists.per_text), _spread(lists.per_image)
    similarities = iter(lists.similarities)
    for text, image in zip_longest(lists.texts, lists.images):
        if isinstance(text, str):
            blocks.append(Block("text", text, fields=next(of_texts)))
        elif text is not None:
            what = f"entry {len(blocks)} is a {type(text).__name__} and not a string"
            error = row_error("invalid_text", what)
            blocks.append(Block("text", json_text(text), error=error, fields=next(of_texts)))
        if image is not None:
            fields = next(of_images)
            if (similarity := next(similarities, None)) is not None:
                fields = {**fields, SIMILARITY: similarity}
            blocks.append(_image(image, fields, locators, has_store=has_store))
    return blocks


def _spread(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the values of each entry by column, and no values once the lists end."""
    if columns:
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))
    yield from repeat({})


def _image(image: Any, fields: Mapping[str, Any], locators: Mapping[str, str], *, has_store: bool) -> Block:
    if not isinstance(image, str) or not is_unicode(image):
        what = "not Unicode" if isinstance(image, str) else f"a {type(image).__name__} and not a URL"
        what = f"an entry of images is {what}"
        return Block("image", error=row_error("invalid_token", what), fields=fields)
    if (locator := locators.get(image)) is not None:
        return Block("image", url=image, source_ref=locator, fields=fields)
    why = "" if has_store else ", since reading.urls.image_store is not set"
    return Block("image", url=image, error=row_error("image_not_in_store", image + why), fields=fields)


def sample_id_of(fields: Mapping[str, Any]) -> str | None:
    """Return the URL of a document; None if it has none.

    OBELICS and OmniCorpus have it in ``general_metadata``, which is an object or its JSON.
    """
    url = fields.get("url")
    if not isinstance(url, str):
        general = fields.get("general_metadata")
        if isinstance(general, str):
            try:
                general = json.loads(general)
            except (ValueError, RecursionError):
                general = None
        url = general.get("url") if isinstance(general, dict) else None
    return url if isinstance(url, str) and url and is_unicode(url) else None
