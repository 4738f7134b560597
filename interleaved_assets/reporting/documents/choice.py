"""The choice of the documents of a shard that a page shows."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from interleaved_assets.model.errors import OptionError
from interleaved_assets.reporting.figures.drops import by_turns
from interleaved_assets.reporting.wording import text

DEFAULT_LIMIT: Final = 200
"""Most documents on a page by default."""


class Choice(NamedTuple):
    """A request for documents of a shard.

    Attributes:
        sample_ids: only these documents; empty for any.
        reasons: only documents with a row dropped for one of these reasons; empty for any.
        random: that many documents at random; None for no random choice.
        seed: seed of the random choice: the same seed chooses the same documents of the same shard.
    """

    limit: int = DEFAULT_LIMIT
    sample_ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    random: int | None = None
    seed: int = 0


class NothingChosen(OptionError):
    """The shard has no such document, or lost no row for such a reason."""


class Chosen(NamedTuple):
    """The documents to show, in the order of the shard, and how they were chosen."""

    sample_ids: list[str]
    how: str


def check_choice(choice: Choice, sample_ids: Collection[str], reasons: Collection[str], where: str) -> None:
    if absent := sorted(set(choice.sample_ids) - set(sample_ids)):
        raise NothingChosen(f"{where} has no document {absent[0]!r}; it has {len(sample_ids):,} documents")
    if absent := sorted(set(choice.reasons) - set(reasons)):
        raise NothingChosen(f"{where} lost no row for {absent[0]!r}; its reasons: {', '.join(reasons) or 'none'}")


def choose_documents(
    sample_ids: Sequence[str],
    reasons: Mapping[str, Sequence[str]],
    choice: Choice,
    without_pictures: Collection[str] = (),
) -> Chosen:
    """Choose from ``sample_ids``; ``reasons`` has the drop reasons of the samples that lost rows.

    If the limit leaves documents out, three quarters of it are for documents with dropped rows, of every reason in
    turn, and the rest is for others, spread evenly over the shard. Each group takes the places that the other does not
    need. Of these others, documents ``without_pictures``, whose images would have to be read, come last.
    """
    found, asked = list(sample_ids), ""
    if choice.sample_ids:
        found = [sample_id for sample_id in found if sample_id in set(choice.sample_ids)]
        asked = " named"
    if choice.reasons:
        found = [sample_id for sample_id in found if set(reasons.get(sample_id, ())) & set(choice.reasons)]
        asked += f" with rows dropped for {' or '.join(choice.reasons)}"
    if choice.random is not None and choice.random < len(found):
        places = np.random.default_rng(choice.seed).choice(len(found), choice.random, replace=False)
        found = [found[place] for place in sorted(places.tolist())]
        asked += f", at random with seed {choice.seed}"
    total = text.counted(len(sample_ids), "document")
    if len(found) <= choice.limit:
        every = len(found) == len(sample_ids)
        return Chosen(found, total if every else f"{text.count(len(found))} of {total}{asked}")
    lossy, whole = _limited(found, reasons, choice.limit, set(without_pictures))
    shown = set(lossy) | set(whole)
    parts = []
    if lossy:
        parts.append(f"{text.count(len(lossy))} with dropped rows, of every reason in turn")
    if whole:
        parts.append(f"{text.count(len(whole))} {'others' if lossy else ''} spread evenly".replace("  ", " "))
    how = f"{text.count(len(shown))} of {total}{asked}: {', and '.join(parts)}"
    return Chosen([sample_id for sample_id in found if sample_id in shown], how)


def _limited(
    sample_ids: Sequence[str], reasons: Mapping[str, Sequence[str]], limit: int, without_pictures: set[str]
) -> tuple[list[str], list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for sample_id in sample_ids:
        for reason in reasons.get(sample_id, ()):
            groups[reason].append(sample_id)
    lossy = list(dict.fromkeys(by_turns(groups, sum(map(len, groups.values())))))
    others = [sample_id for sample_id in sample_ids if not reasons.get(sample_id)]
    room = max(math.ceil(limit * 3 / 4), limit - len(others))
    lossy = lossy[:room]
    drawn = [sample_id for sample_id in others if sample_id not in without_pictures]
    others = drawn if len(drawn) >= limit - len(lossy) else others
    others = [
        others[place] for place in np.linspace(0, len(others) - 1, min(limit - len(lossy), len(others))).astype(int)
    ]
    return lossy, others
