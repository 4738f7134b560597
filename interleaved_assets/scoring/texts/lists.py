"""Lists of words that scorers count: of a file that a user names, and a list of English function words."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interleaved_assets.io.storage.local import LocalFile
from interleaved_assets.model.errors import SettingsError

LARGEST_LIST_BYTES: Final = 16 * 2**20
_STOP_WORDS: Final = """
a about above after again against all am an and any are aren't as at be because been before being below between
both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each even ever
every few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers
herself him himself his how how's however i i'd i'll i'm i've if in into is isn't it it's its itself just let's
may me might more most much must mustn't my myself neither never no nor not now of off often on once only or
other ought our ours ourselves out over own perhaps quite rather same shall shan't she she'd she'll she's should
shouldn't since so some such than that that's the their theirs them themselves then there there's these they
they'd they'll they're they've this those though through thus till to too toward towards under until unless up
upon us very via was wasn't we we'd we'll we're we've were weren't what what's when when's where where's whether
which while who who's whom whose why why's will with within without won't would wouldn't yet you you'd you'll
you're you've your yours yourself yourselves also another anything around away back come else enough get gets
got go goes going gone
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""English function words: articles, pronouns, prepositions, conjunctions, auxiliary verbs and common adverbs."""


def words_in(path: str | None, setting: str) -> frozenset[str]:
    """Return the words in a UTF-8 file, a word a line, in lower case; none without a file.

    Raises SettingsError with the ``setting`` if the file cannot be read.
    """
    if path is None:
        return frozenset()
    return frozenset(line.strip().lower() for line in _content(path, setting).splitlines() if line.strip())


def list_versions(named: Mapping[str, str]) -> dict[str, str]:
    """Return a hash of the content of each list by its setting; ``named`` has the paths."""
    return {setting: hashlib.sha256(_read(path, setting)).hexdigest() for setting, path in named.items()}


def _content(path: str, setting: str) -> str:
    try:
        return _read(path, setting).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{setting}: {path} cannot be read as a list of words: {error}") from error


def _read(path: str, setting: str) -> bytes:
    try:
        with LocalFile(Path(path), path) as file:
            if file.size > LARGEST_LIST_BYTES:
                raise SettingsError(f"{setting}: {path} has {file.size:,} bytes, over {LARGEST_LIST_BYTES:,}")
            return bytes(file.read_at(0, file.size))
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read as a list of words: {error}") from error
