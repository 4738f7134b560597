"""``interleaved view``: show the documents of a shard, or of a shard file, on one HTML page."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.complete import complete_shards_and_files
from interleaved_assets.cli.terminal.options import FILE, as_json, overwrite

if TYPE_CHECKING:
    from interleaved_assets.reporting.documents.choice import Choice
    from interleaved_assets.reporting.documents.pages import DocumentPage
    from interleaved_assets.settings import Settings

SECTION: Final = "Samples and dropped rows"


@click.command("view")
@click.argument("shard", metavar="KEY|FILE", shell_complete=complete_shards_and_files)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Most documents; default: 200.")
@click.option("--sample-id", "sample_ids", metavar="ID", multiple=True, help="Only this document; can be repeated.")
@click.option(
    "--reason", "reasons", metavar="NAME", multiple=True, help="Only documents that lost rows for it; can be repeated."
)
@click.option("--random", metavar="N", type=click.IntRange(min=1), help="N documents at random.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of --random; default: 0.")
@click.option(
    "--out", "page_file", metavar="FILE", help="Where the page goes; default: <name>.html in this folder.", type=FILE
)
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser.")
@overwrite
@as_json
@click.pass_obj
def view_command(
    file: str | None,
    *,
    shard: str,
    limit: int | None,
    sample_ids: tuple[str, ...],
    reasons: tuple[str, ...],
    random: int | None,
    seed: int,
    page_file: str | None,
    in_browser: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Show documents on one HTML page: texts and images in order, with dropped rows in their places.

    KEY is that of a shard of this project, as for `interleaved run`; its page has stage, reason, measured value and
    threshold of each drop. A shard file of any format, path or URL, needs no project.

    \b
    interleaved view web/part-0003 --open
    interleaved view web/part-0003 --reason qr_above --limit 20
    interleaved view some.tar --random 50 --seed 1
    """
    from interleaved_assets.cli.terminal.console import console, open_page, print_error, print_json, progress
    from interleaved_assets.io.storage import atomic_output
    from interleaved_assets.model.shown import without_credentials
    from interleaved_assets.pipeline.files.inputs import without_ending
    from interleaved_assets.pipeline.files.write_rows import check_target
    from interleaved_assets.reporting.documents.choice import DEFAULT_LIMIT, Choice, NothingChosen
    from interleaved_assets.reporting.documents.files import file_documents
    from interleaved_assets.reporting.documents.html import documents_html
    from interleaved_assets.settings import load_settings, load_settings_or_defaults

    out = console()
    choice = Choice(limit or random or DEFAULT_LIMIT, sample_ids, reasons, random, seed)
    path = page_file or f"{PurePosixPath(without_ending(without_credentials(shard))).name or 'documents'}.html"
    is_file = _is_file(shard, file)
    # the settings of this folder, if any, have the layout of its tars
    settings = load_settings_or_defaults(file) if is_file else load_settings(file)
    check_target(path, [shard] if is_file else [], settings.storage, overwrite=overwrite)
    try:
        with progress("reading documents", 1, out, as_json=as_json):
            page = file_documents(shard, choice, settings) if is_file else _shard_page(shard, choice, settings)
    except NothingChosen as error:
        print_error(f"interleaved: {error}")
        return 1
    if page is None:
        return 1
    with atomic_output(path, settings.storage.options_for(path)) as written:
        written.write(documents_html(page).encode())
    for problem in page.layout:
        print_error(f"interleaved: {shard}: {problem}")
    if as_json:
        facts = {"page": path, "documents": len(page.documents), "chosen": page.how, "layout": list(page.layout)}
        print_json({**facts, "bytes": written.size})
    else:
        size = f"{written.size / 1e6:.1f} MB" if written.size >= 1e6 else f"{written.size / 1e3:.0f} KB"
        console().print_line(f"{path}: {page.how}, {size}")
    return 0 if not in_browser or open_page(path) else 2


def _is_file(shard: str, settings_file: str | None) -> bool:
    """Return whether this is a shard file, and not the key of a shard, which may have the ending of a format too."""
    from interleaved_assets.model.errors import SettingsError
    from interleaved_assets.pipeline.files.inputs import without_ending
    from interleaved_assets.pipeline.raw.keys import is_key
    from interleaved_assets.pipeline.run.stored_records import read_present_records
    from interleaved_assets.pipeline.stages.names import NORMALIZED
    from interleaved_assets.settings import load_settings

    if "://" in shard:
        return True
    try:
        if Path(shard).is_file():
            return True
    except OSError:  # reading it reports the error; a key is relative, to a folder that can be searched
        return Path(shard).is_absolute()
    if without_ending(shard) == shard:
        return False
    try:
        settings = load_settings(settings_file)
    except SettingsError:
        return True
    return not is_key(shard) or not read_present_records(settings.storage.shard(shard), [NORMALIZED])


def _shard_page(key: str, choice: "Choice", settings: "Settings") -> "DocumentPage | None":
    from interleaved_assets.cli.terminal.console import print_error, short
    from interleaved_assets.cli.terminal.shard_keys import did_you_mean
    from interleaved_assets.pipeline.raw.keys import is_key
    from interleaved_assets.pipeline.run.stored_records import read_present_records, recorded_stages
    from interleaved_assets.pipeline.stages.dag import stage_dag
    from interleaved_assets.pipeline.stages.names import NORMALIZED
    from interleaved_assets.reporting.documents.pages import shard_documents
    from interleaved_assets.reporting.figures.collect import shard_facts

    records = read_present_records(settings.storage.shard(key), stage_dag(settings)) if is_key(key) else {}
    if NORMALIZED in records:
        facts = shard_facts(key, settings, records)
        return shard_documents(key, settings, choice, with_previews=True, facts=facts)
    known = recorded_stages(settings.storage, [NORMALIZED])
    if key in known:
        print_error(f"interleaved: the outputs of shard {key} are not those of its record: interleaved run {key}")
        return None
    what = f"no shard {short(key)} has been materialized, and there is no such file"
    print_error(f"interleaved: {what}{did_you_mean(key, known)}")
    return None
