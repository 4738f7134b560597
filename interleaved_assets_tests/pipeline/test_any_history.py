"""After any history of events, outputs are those of a new project over the same raw shards with the same settings."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from interleaved_assets.cli.entry_point import main
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.pipeline.test_kill import watch_storage

FIXED = '[run]\npictures = false\nparallel_shards = 1\n[storage]\nraw_root = "raw"\noutput_root = "out"\n'
CHOICES = (
    "",
    'image_bytes = "referenced"\n',
    "[selection]\nmin_sharpness = 0\ntext = {words = {min = 2}}\n",
    "[selection]\nmin_sharpness = 0\ntext = {words = {min = 2}}\nreindex_positions = true\n",
    '[selection]\nmin_words = 3\n[documents]\nscorers = ["words", "characters"]\n',
    "[final_tars]\nmax_samples_per_tar = 1\n",
    '[export]\nenabled = true\nimages_per_tar = 2\n[rewriting]\nfunctions = ["normalize_whitespace"]\n',
    '[scoring]\nscorers = ["sharpness", "qr"]\nmax_pixels = 1000\n[selection]\non_score_error = "warn"\n',
)
SETTINGS = st.sampled_from(CHOICES)
STAYS = (
    *("rewritten/", "changes/", "image_export/", "images/", "dropped/rewritten", "dropped/image_export"),
    *("records/rewritten", "records/image_export", "pictures/"),
)
"""Where outputs of stages are that have been turned off, and rows that are no longer dropped."""
NAMES = st.sampled_from(["a", "b", "sub/a"])
PARTS = st.floats(0, 1, exclude_max=True)


class History(RuleBasedStateMachine):
    """A project to which things happen; the shard ``kept`` stays, so that the raw root is never empty."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.cut: set[Path] = set()
        self.seconds = 0
        good_shard(self.folder / "raw/kept.tar", seed=5)
        self.choose("")

    def choose(self, text: str) -> None:
        (self.folder / "interleaved.toml").write_text(FIXED + text)

    @rule(name=NAMES, seed=st.integers(0, 2))
    def put(self, name: str, seed: int) -> None:
        self.cut.discard(good_shard(self._raw(name), seed=seed))

    @rule(name=NAMES, to=NAMES)
    def rename(self, name: str, to: str) -> None:
        if self._raw(name).exists() and self._raw(name) not in self.cut:
            self._raw(to).parent.mkdir(exist_ok=True)
            self.cut.discard(self._raw(name).replace(self._raw(to)))

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        """Set a time that no shard has had: another content of the same size and time is only seen by its bytes."""
        if self._raw(name).exists():
            self.seconds += 1
            os.utime(self._raw(name), (self.seconds, self.seconds))

    @rule(name=NAMES)
    def cut_or_delete(self, name: str) -> None:
        raw = self._raw(name)
        if raw in self.cut:
            raw.unlink()
            self.cut.remove(raw)
        elif raw.exists():
            os.truncate(raw, raw.stat().st_size // 2)
            self.cut.add(raw)

    @rule(which=PARTS, empty=st.booleans())
    def damage(self, which: float, empty: bool) -> None:
        if found := sorted(path for path in (self.folder / "out").rglob("*") if path.is_file()):
            path = found[int(which * len(found))]
            path.write_bytes(b"") if empty else path.unlink()

    @rule(text=SETTINGS)
    def run(self, text: str) -> None:
        self.choose(text)
        self._interleaved("run")

    @rule(text=SETTINGS, moment=st.integers(1, 60))
    def run_until(self, text: str, moment: int) -> None:
        """A run that Ctrl-C ends at this change of the storage."""
        self.choose(text)
        left = moment

        def reached(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patches:
            watch_storage(reached, patches.setattr)
            self._interleaved("run")

    def teardown(self) -> None:
        for raw in self.cut:
            raw.unlink()
        self._interleaved("forget", "--vanished", "--yes")
        assert self._interleaved("run") == 0
        found = self._files()
        assert self._interleaved("run") == 0
        assert self._files() == found
        (self.folder / "out").rename(self.folder / "before")
        assert self._interleaved("run") == 0
        wanted = self._files()
        assert {name: found.get(name) for name in wanted} == wanted
        assert [name for name in found.keys() - wanted.keys() if not name.startswith(STAYS)] == []
        shutil.rmtree(self.folder)

    def _raw(self, name: str) -> Path:
        return self.folder / f"raw/{name}.tar"

    def _interleaved(self, *arguments: str) -> int:
        return main(["--settings", str(self.folder / "interleaved.toml"), *arguments])

    def _files(self) -> dict[str, bytes]:
        """Bytes of every output by its path; of a record, without its seconds and the stamps of files."""
        out = self.folder / "out"
        varying = rb'"stamp": ?"[^"]*"|"seconds": ?[\d.]+'
        return {
            str(path.relative_to(out)): re.sub(varying, b"", path.read_bytes())
            if path.suffix == ".json"
            else path.read_bytes()
            for path in sorted(out.rglob("*"))
            if path.is_file()
        }


@pytest.mark.hypothesis
def test_outputs_are_those_of_a_new_project() -> None:
    few = hypothesis.settings().max_examples // 5
    run_state_machine_as_test(History, settings=hypothesis.settings(max_examples=few, stateful_step_count=12))
