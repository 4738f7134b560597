"""The lists of MMC4 (arXiv 2304.06939): sentences, and images that name theirs, as parallel lists."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from interleaved_assets.io.web_documents.blocks import SIMILARITY, UrlLists

MMC4_LISTS: Final = frozenset(("text_list", "image_info"))


def is_mmc4(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the two lists of MMC4 and not parallel ones."""
    return all(isinstance(record.get(name), list) for name in MMC4_LISTS)


def mmc4_lists(record: Mapping[str, Any]) -> UrlLists:
    """Return the sentences of an MMC4 document, each after the images whose ``matched_text_index`` names it.

    Images without a valid index come last. The URL is ``raw_url``.
    """
    sentences: list[Any] = record["text_list"]
    matched: dict[int, list[Any]] = defaultdict(list)
    for info in record["image_info"]:
        index: Any = info.get("matched_text_index") if isinstance(info, dict) else None
        is_place = type(index) is int and 0 <= index < len(sentences)
        matched[index if is_place else len(sentences)].append(info)
    texts: list[Any] = []
    images: list[Any] = []
    similarities: list[float | None] = []
    for place in range(len(sentences) + 1):
        for info in matched.get(place, ()):
            url = info.get("raw_url") if isinstance(info, dict) else info
            similarity: Any = info.get(SIMILARITY) if isinstance(info, dict) else None
            texts.append(None)
            images.append({} if url is None else url)
            if type(similarity) is int and abs(similarity) <= 1:  # JSON writes 1.0 as 1
                similarity = float(similarity)
            similarities.append(similarity if type(similarity) is float else None)
        if place < len(sentences):
            texts.append(sentences[place])
            images.append(None)
    return UrlLists(texts, images, similarities)
