"""The code and the commands of README and docs: each is run by a test, or is listed here with the reason why not."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.defs.demo import PAGES as PAGES_OF_UI
from interleaved_assets.defs.demo import SETTINGS, summary_table
from interleaved_assets.demo.shards import SHARDS
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.documents import good_shard
from interleaved_assets_tests.projects import take_all

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/**/*.md"),
        *REPOSITORY.glob("*/README.md"),
        *REPOSITORY.glob("data/*/README.md"),
    )
)

PYTHON_RUN_BY = {
    "README.md": "test_docs_code.py",
    "docs/coming-from-nemo-curator.md": "test_coming_from_nemo_curator.py",
    "docs/extending.md": "selection/test_extending_docs.py",
    "docs/formats.md": "test_formats_docs.py",
    "docs/library.md": "test_docs_code.py",
    "docs/sources.md": "test_sources_docs.py",
    "docs/rewriting.md": "rewriting/test_rewriting_docs.py",
    "docs/text-scores.md": "test_text_scores_docs.py",
    "docs/training.md": "test_training_docs.py",
}
"""The test that runs all Python blocks of a page."""
PYTHON_NOT_RUN = {
    "docs/clip.md": "downloads the weights of a model",
    "data/models/README.md": "scoring/clip/test_scorer.py loads the same files through the project",
}
CONSOLE_RUN_BY = {"docs/command-line.md": "test_command_line_docs.py"}
"""The test that runs all commands of a page and compares what they print."""
NOT_RUN = {
    "make": "installs, or takes minutes; .ci/run runs them. The targets are compared with the Makefile here",
    "python": "a benchmark or a training, of minutes to hours. Modules and options are compared with the source here",
    "python3.11": "an environment with packages from the registry",
    "pip": "packages from the registry",
    "build/peer/bin/pip": "packages from the registry",
    "$EDITOR": "is the reader's",
    "docker": "needs a Docker daemon",
    "apt-get": "changes the system",
    "systemctl": "changes the system",
    "caddy": "deploy/test_proxy.py runs it with the same configuration",
    "dagster": "needs the services of its page",
    "dagster-webserver": "needs the services of its page; defs/test_ui.py runs it",
    "dagster-daemon": "needs the services of its page; defs/test_live.py runs it",
    "deploy/ray/start.sh": "deploy/test_ray.py runs it",
    "export": "variables for the commands below it",
    "eval": "a line for the start-up file of a shell",
    "source": "a line for the start-up file of a shell",
}
"""Commands that no test runs, by their first word."""
INTERLEAVED = ("interleaved", ".venv/bin/interleaved")


def blocks(page: str, *languages: str) -> list[str]:
    """The contents of the page's fenced blocks in these languages."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in languages]


def words_of(line: str) -> list[str]:
    """The words of a command without its comment and without variables that are set for it."""
    words = shlex.split(line.replace("<", "'").replace(">", "'"), comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words


def commands(page: str) -> Iterator[list[str]]:
    """Every command of a page as its words. A block without a language has commands where its first line is one."""
    lines = [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    for block in blocks(page, "sh", ""):
        whole = block.replace("\\\n", " ").splitlines()
        is_shell = block in blocks(page, "sh")
        if is_shell or re.match(r"(?:\w+=\S+ )*(\S+)", block)[1] in {*NOT_RUN, *INTERLEAVED}:  # type: ignore[index]
            lines += whole
    for line in lines:
        for part in re.split(" && | [|] ", line):
            if words := words_of(part):
                yield words


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_of_every_page_is_run_or_listed(page: str) -> None:
    assert (page in PYTHON_RUN_BY) != (page in PYTHON_NOT_RUN)
    if page in PYTHON_RUN_BY:
        source = (REPOSITORY / "interleaved_assets_tests" / PYTHON_RUN_BY[page]).read_text(encoding="utf-8")
        assert Path(page).name in source


@pytest.mark.parametrize("page", [page for page in PAGES if [*commands(page)]])
def test_every_command_exists_and_is_run_or_listed(page: str) -> None:
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for words in commands(page):
        name, *rest = words
        if name in INTERLEAVED:
            if rest:
                parse(rest)
            continue
        assert name in NOT_RUN, f"{page}: {shlex.join(words)}"
        if name == "make":
            assert rest[0] in targets, rest[0]
        elif name == "python":
            file = Path(rest[1].replace(".", "/") + ".py") if rest[0] == "-m" else Path(rest[0])
            folder = REPOSITORY / file.with_suffix("")
            sources = [*folder.rglob("*.py")] if folder.is_dir() else [REPOSITORY / file]
            source = "".join(path.read_text(encoding="utf-8") for path in sources)
            for option in (word for word in rest if word.startswith("--")):
                assert f'"{option}"' in source, f"{page}: {file} has no {option}"


def parse(words: list[str]) -> None:
    """Parse a command line of ``interleaved`` without running it."""
    with interleaved.make_context("interleaved", words) as context:
        name, command, rest = interleaved.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        command.make_context(name, rest, parent=context).close()


def test_pages_that_are_run_elsewhere_are_named_there() -> None:
    for page, test in CONSOLE_RUN_BY.items():
        source = (REPOSITORY / "interleaved_assets_tests" / test).read_text(encoding="utf-8")
        assert page in source
    with_prompts = {page for page in PAGES if blocks(page, "console")}
    assert with_prompts == {*CONSOLE_RUN_BY, "README.md"}  # whose only commands there are make's


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two shards in ``raw``, as the current one."""
    for number, name in enumerate(("a", "b")):
        good_shard(tmp_path / f"raw/{name}.tar", seed=10 * number)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_readme_run(raw: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [words[1:] for words in commands("README.md") if words[0] in INTERLEAVED]
    assert len(lines) == 10
    for words in lines:
        assert main(words) == 0, f"{shlex.join(words)}: {capfd.readouterr().err}"
    assert load_settings("bucket.toml").storage.raw_root == "s3://bucket/raw"
    made = ("a.html", "parquet/a.parquet", "parquet/b.parquet", "out/tars/b.tar", "out/releases/v1/manifest.json")
    assert [name for name in made if not (raw / name).exists()] == []


def test_the_library_example_of_the_readme_runs(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("README.md", "python")
    exec(compile(source, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("1 rows dropped") == 2
    assert len([*(raw / "curated").glob("*.tar")]) == 2


def test_the_example_of_the_library_page_runs(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("docs/library.md", "python")
    exec(compile(source, "docs/library.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(line.endswith(" 5 images, 0 failed") for line in printed)


def test_the_readme_shows_what_the_demo_prints(raw: Path, drawn: Callable[[str], Path]) -> None:
    key = "web/articles-000"
    (raw / "interleaved.toml").write_text(SETTINGS, encoding="utf-8")
    settings = load_settings(raw / "interleaved.toml")
    (raw / "data/raw/web").mkdir(parents=True)
    shutil.copy(drawn(f"{key}.tar"), raw / f"data/raw/{key}.tar")
    take_all(settings, key)
    console = Console(width=150, record=True, file=(raw / "printed").open("w"))
    console.print(summary_table(settings, [key]))
    shown = [" ".join(line.split()) for line in blocks("README.md", "console")[0].splitlines()]
    printed = [" ".join(line.split()) for line in console.export_text().splitlines()]
    for line in (printed[2], *printed[4:6]):
        assert line in shown, line
    assert f"{len(SHARDS)} demo shards in /home/me/interleaved-assets/data/raw" in shown
    for about, page in PAGES_OF_UI.items():
        assert f"{about} http://127.0.0.1:3000{page}" in shown
