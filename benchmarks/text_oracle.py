"""datatrove's filters and the bounds on our scores over real texts: how many are decided in another way, and why.

``python -m benchmarks.text_oracle PATH …`` takes the documents, and each of their texts, of shards (tars), and the main
content of pages, and each of its lines, in JSON files of WCXB or a folder of them (``ground_truth.main_content``).
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.datatrove_filters import RULES, ours, scores_of, theirs
from interleaved_assets.io import InterleavedWebdatasetReader


def texts_of(path: Path) -> Iterator[str]:
    """Yield the documents and texts of a shard, or the main content of a page and its lines."""
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield from texts_of(file)
    elif path.suffix == ".json":
        if content := json.loads(path.read_text(encoding="utf-8"))["ground_truth"].get("main_content"):
            yield content
            yield from content.splitlines()
    else:
        rows = [
            (row["sample_id"], row["text_content"] or "")
            for batch in InterleavedWebdatasetReader(str(path))
            for row in batch.to_pyarrow().select(["sample_id", "modality", "text_content"]).to_pylist()
            if row["modality"] == "text"
        ]
        for _, texts in groupby(rows, key=lambda row: row[0]):
            mine = [text for _, text in texts]
            yield "\n\n".join(mine)
            yield from mine


def explanation(rules: str, text: str, said: str, found: str) -> str:
    """Return why the two decide in another way on a text; empty if that is not known."""
    signs = [word for word in text.split() if not any(map(str.isalnum, word))]
    if rules == "Gopher number of words" and signs:
        return "words of signs alone, which count here, as for str.split, and not in datatrove"
    if rules == "Gopher quality":
        if not any(map(str.isalnum, text)):
            return (
                "no letter and no digit: datatrove's mean length of no words is no number; here another rule drops it"
            )
        if {said, found} & {"gopher_below_avg_threshold", "gopher_above_avg_threshold"} and signs:
            return "words of signs alone such as § or →, which datatrove's list of punctuation lacks"
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table with a row for each filter, and the texts whose decision is not explained."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text_oracle", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    options = parser.parse_args(arguments)
    texts = [text for path in options.paths for text in texts_of(path)]
    print(f"{len(texts):,} texts with {sum(map(len, texts)):,} characters\n")
    scores = scores_of(texts)
    print("| filter | dropped by it | dropped by us | another decision | another reason first | explained |")
    print("|---|---|---|---|---|---|")
    for name, rules in RULES.items():
        pairs = list(
            zip(texts, theirs(texts, rules.filter_class, rules.options), ours(scores, rules.bounds), strict=True)
        )
        other = [pair for pair in pairs if bool(pair[1]) != bool(pair[2])]
        reason = [pair for pair in pairs if pair[1] and pair[2] and pair[1] != pair[2]]
        why = Counter(explanation(name, *pair) for pair in (*other, *reason))
        said = "; ".join(f"{count:,} {text or 'NOT'}" for text, count in why.most_common()) or "–"
        dropped = [sum(bool(pair[place]) for pair in pairs) for place in (1, 2)]
        print(f"| {name} | {dropped[0]:,} | {dropped[1]:,} | {len(other):,} | {len(reason):,} | {said} |")
        for text, theirs_, ours_ in (*other, *reason):
            if not explanation(name, text, theirs_, ours_):
                print(f"NOT explained, {name}: {theirs_ or 'kept'} there, {ours_ or 'kept'} here: {text[:200]!r}")


if __name__ == "__main__":
    main()
