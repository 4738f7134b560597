import re
from pathlib import Path

import pytest

from interleaved_assets.io.storage.limits import LIMITS, check_limits
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.settings import Settings, load_settings, load_settings_or_defaults, settings_path
from interleaved_assets.settings.sections import fields_of


def write(folder: Path, text: str) -> Path:
    file = folder / "interleaved.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_empty_file_gives_the_documented_defaults(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, ""))
    assert settings.errors.on_materialize_error == "error"
    assert settings.selection.min_sharpness == 100
    assert settings.selection.max_qr_area_ratio == 0.05
    assert settings.run.shards_per_run == 100


def test_options_that_are_no_secret_are_taken(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[storage.options]\ntoken = "anon"\nendpoint_url = "http://s3"\n'))
    assert settings.storage.options == {"token": "anon", "endpoint_url": "http://s3"}


def test_relative_roots_start_at_the_file_and_urls_stay(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[storage]\nraw_root = "shards"\noutput_root = "s3://bucket/out/"\n'))
    assert settings.storage.raw_root == str(tmp_path / "shards")
    assert settings.storage.output_root == "s3://bucket/out"


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, '[storage]\nraw_root = "a"\noutput_root = "b"\n')
    monkeypatch.setenv("INTERLEAVED_STORAGE__RAW_ROOT", "s3://bucket/raw")
    monkeypatch.setenv("INTERLEAVED_SELECTION__MIN_SHARPNESS", "50")
    settings = load_settings(file)
    assert settings.storage.raw_root == "s3://bucket/raw"
    assert settings.storage.output_root == str(tmp_path / "b")
    assert settings.selection.min_sharpness == 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[selection]\ndocument.words = {mn = 1}\n",
            r"document\.words\.mn: unknown key; allowed here: in, max, min, not_in",
        ),
        ("[selection]\nown.x = {felt = 1}\n", r"own\.x\.felt: unknown key; allowed here: field, in, max, min, not_in"),
        ("[selection]\nmin_sharp = 1\n", r"selection\.min_sharp: unknown key; allowed here: .*min_sharpness"),
        (
            "[clip.prescreen]\nmin_width = 64\n",
            r"clip\.prescreen\.min_width: unknown key; .*min_short_side",
        ),
        ('[clip]\ndecode = "host"\n', r"clip\.decode: unknown key; allowed here: .*device"),
        (
            '[scoring]\nqr_detector = "zxing"\n',
            r"qr_detector: .*'zxing\+aruco', 'opencv' or 'zbar', got 'zxing'",
        ),
        ("[run]\nscratch_bytes = 0\n", r"run\.scratch_bytes: unknown key; allowed here: executor, keep_days, "),
        ("[storing]\n", r"storing: unknown key; allowed here: checks, clip, documents, errors, .*storage"),
        (
            "[selection]\nmax_qr_area_ratio = 1.5\n",
            r"selection\.max_qr_area_ratio: .*less than or equal to 1, got 1\.5 .*0 to 1",
        ),
        ("[run]\nparallel_shards = 0\n", r"run\.parallel_shards: .*greater than or equal to 1, got 0"),
        ("[run]\nkeep_days = 1_000_000\n", r"run\.keep_days: .*less than or equal to 36500, got 1000000"),
        ("[watch]\nquiet_seconds = inf\n", r"watch\.quiet_seconds: .*finite number, got inf"),
        ('[run]\nparallel_shards = "many"\n', r"run\.parallel_shards: .*valid integer.*, got 'many'"),
        (
            '[errors]\non_materialize_error = "ignore"\n',
            r"errors\.on_materialize_error: .*'error', 'warn', 'drop_row' or 'drop_sample'",
        ),
        (
            '[scoring]\nscorers = ["qr"]\n',
            r"selection: filter 'sharpness' needs the score sharpness, .*turn on what measures it \(scoring\.scorers",
        ),
        ("[selection]\nmax_nsfw = 0.5\n", r"turn on what measures it \(scoring\.scorers, with nsfw\) and make"),
        ("[selection]\nmax_nsfw_clip = 0.5\n", "selection: filter 'nsfw_clip' needs the score nsfw_clip_score"),
        ('[scoring]\nscorers = ["sharpnes"]\n', r"scoring\.scorers: .*no scorer named sharpnes; there are sharpness"),
        (
            '[storage.options]\nsecret = "s"\n',
            r"storage\.options\.secret is not known to be public.*AWS_SECRET_ACCESS_KEY",
        ),
        (
            '[storage.options.client_kwargs]\naws_session_token = "s"\n',
            r"storage\.options\.client_kwargs\.aws_session_token is not known to be public",
        ),
        ("[selection]\ndocument.words = 5\n", r"document\.words: .*be a table, such as \{ min = 5 \}, got 5 "),
        (
            '[selection]\ndocument.language = { in = "en" }\n',
            r"document\.language\.in: Input should be a list, got 'en'",
        ),
        ('[selection]\nown = "brightness"\n', r"selection\.own: Input should be a table, got 'brightness'"),
        ("[storage]\nbundles = { pdf = 0 }\n", r"storage\.bundles\.pdf: .*equal to 1, got an integer "),
        ('[serve]\nurl = "localhost:3010"\n', r"serve\.url: .*a URL such as http://host:port, .*, got a string "),
        (
            '[reading.pdf]\nmodel_url = "localhost:8000/v1"\nmodel = "m"\n',
            r"model_url: Input should be a URL such as http://host:port, got a string ",
        ),
        ("run = 5\n", r"run: Input should be a table, got 5 "),
        ("reading = 5\n", r"reading: Input should be a table, got 5 "),
        (
            "[selection]\ndocument.language = {min = 1}\n",
            r"document\.language: it is a string, which in and not_in compare, not min and max",
        ),
        (
            '[selection]\nown.qr = {field = "x", max = 1}\n',
            r"own: qr has settings of its own, such as .*max_qr_area_ratio",
        ),
        ("[run\n", r"interleaved\.toml is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(write(tmp_path, text))


def test_a_misspelt_variable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "")
    monkeypatch.setenv("INTERLEAVED_STORAGE__RAW_ROOTS", "x")
    with pytest.raises(SettingsError, match="INTERLEAVED_STORAGE__RAW_ROOTS: no such setting"):
        load_settings(file)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    with pytest.raises(SettingsError, match=r"interleaved\.toml/x cannot be read: Not a directory"):
        load_settings(file / "x")
    file.write_bytes(b"[storage]\nraw_root = '\xff'\n")
    with pytest.raises(SettingsError, match=r"interleaved\.toml is not valid TOML: 'utf-8' codec can't decode"):
        load_settings(file)


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("INTERLEAVED_SETTINGS", raising=False)
    with pytest.raises(
        SettingsError, match=r"no settings file: looked for .*work/interleaved\.toml, .*home/interleaved\.toml"
    ):
        settings_path()
    with pytest.raises(SettingsError, match=r"Write one with interleaved init, .*or name a file with --settings or in"):
        settings_path()
    in_home = write(home, "")
    assert settings_path() == in_home
    in_work = write(work, "")
    assert settings_path() == in_work
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(in_home))
    assert settings_path() == in_home


def test_every_setting_says_what_it_means_and_its_default() -> None:
    def leaves(model: type, prefix: str = "") -> list[tuple[str, str | None]]:
        found = []
        for name, field in fields_of(model).items():
            if hasattr(field.annotation, "model_fields"):
                found += leaves(field.annotation, f"{prefix}{name}.")
            else:
                found.append((prefix + name, field.description))
        return found

    undocumented = [name for name, description in leaves(Settings) if not description or "Default" not in description]
    assert undocumented == []


def test_files_of_the_model_start_at_the_file_and_tags_stay(tmp_path: Path) -> None:
    (tmp_path / "model.pt").touch()
    text = '[clip]\npretrained = "{}"\nmodel_config_path = "model.json"\n[clip.heads.mine]\npath = "mine.pth"\n'
    local = load_settings(write(tmp_path, text.format("model.pt"))).clip
    assert local.pretrained == str(tmp_path / "model.pt")
    assert local.model_config_path == str(tmp_path / "model.json")
    assert local.heads["mine"].path == str(tmp_path / "mine.pth")
    assert load_settings(write(tmp_path, text.format("openai"))).clip.pretrained == "openai"


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "interleaved.toml"
    file.write_text("[selection]\nmin_sharpness = 7\n", encoding="utf-8-sig")
    assert load_settings(file).selection.min_sharpness == 7


def test_the_name_of_a_section_has_no_case_also_beside_a_recipe(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, 'recipe = "mmc4"\n[Selection]\nmax_images = 7\n'))
    assert settings.selection.max_images == 7
    assert "clip" in settings.selection.active_filters()
    both = "[Selection]\nmin_sharpness = 7\n[selection]\nmin_short_side = 9\n"
    with pytest.raises(SettingsError, match="selection: the file has this section twice, in upper and lower case"):
        load_settings(write(tmp_path, both))


@pytest.mark.parametrize(("root", "said"), [("out\\u0000", "character NUL"), ("s3://", "names a scheme alone")])
def test_a_root_that_names_no_place_is_refused(tmp_path: Path, root: str, said: str) -> None:
    for key in ("raw_root", "output_root"):
        with pytest.raises(SettingsError, match=f"storage.{key}: .*{said}"):
            load_settings(write(tmp_path, f'[storage]\n{key} = "{root}"\n'))


def test_a_tilde_in_front_of_no_user_is_part_of_the_name(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[storage]\nraw_root = "~no such user/raw"\n'))
    assert settings.storage.raw_root == str(tmp_path / "~no such user/raw")


@pytest.mark.parametrize(("raw", "out"), [("real", "link/out"), ("link", "real"), ("file://{}/real", "{}/real/out")])
def test_roots_that_lie_in_one_another_by_another_name_are_refused(tmp_path: Path, raw: str, out: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    roots = (root.format(tmp_path) for root in (raw, out))
    with pytest.raises(SettingsError, match="lie inside one another"):
        load_settings(write(tmp_path, '[storage]\nraw_root = "{}"\noutput_root = "{}"\n'.format(*roots)))


@pytest.mark.parametrize(
    ("raw", "out"), [("data", "data/out"), ("data/raw", "data"), ("s3://b", "s3://b/out"), ("x", "x")]
)
def test_roots_that_lie_in_one_another_are_refused(tmp_path: Path, raw: str, out: str) -> None:
    with pytest.raises(SettingsError, match="lie inside one another"):
        load_settings(write(tmp_path, f'[storage]\nraw_root = "{raw}"\noutput_root = "{out}"\n'))


def test_a_list_in_the_environment_that_is_no_json_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLEAVED_SELECTION__ORDER", "sharpness,qr")
    with pytest.raises(SettingsError, match="given as JSON"):
        load_settings(write(tmp_path, ""))


@pytest.mark.parametrize(("given", "size"), [('"64MiB"', 2**26), ('"1 GB"', 10**9), ("2097152", 2**21)])
def test_a_size_is_a_number_of_bytes_or_has_a_unit(tmp_path: Path, given: str, size: int) -> None:
    assert load_settings(write(tmp_path, f"[run]\nmax_batch_bytes = {given}\n")).run.max_batch_bytes == size


@pytest.mark.parametrize("given", ['"64 KiB"', '"much"', "-1", "1.5"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(SettingsError, match=r"run\.max_batch_bytes: .*, got .* \(Bytes of rows"):
        load_settings(write(tmp_path, f"[run]\nmax_batch_bytes = {given}\n"))


def test_limits_are_those_of_tars(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "")).limits.for_tars() == LIMITS
    limits = load_settings(write(tmp_path, "[limits]\nmax_sample_bytes = '3MiB'\nmax_columns = 7\n")).limits
    assert check_limits(limits.for_tars()) == LIMITS._replace(max_sample_bytes=3 * 2**20, max_columns=7)
    said = r"limits\.max_member_bytes: .*equal to 1048576, got 5 \(Bytes of one .*Default 1 GiB \(1073741824\)"
    with pytest.raises(SettingsError, match=said):
        load_settings(write(tmp_path, "[limits]\nmax_member_bytes = 5\n"))


def test_work_on_files_needs_no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("INTERLEAVED_RUN__PARALLEL_SHARDS", "3")
    assert load_settings_or_defaults().run.parallel_shards == 3
    write(tmp_path, "[run]\nparallel_shards = 5\nstorage_tries = 7\n")
    found = load_settings_or_defaults().run
    assert (found.parallel_shards, found.storage_tries) == (3, 7)
    with pytest.raises(SettingsError, match="no settings file"):
        load_settings_or_defaults(tmp_path / "none.toml")
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(tmp_path / "none.toml"))
    with pytest.raises(SettingsError, match="no settings file"):
        load_settings_or_defaults()


def test_a_bound_on_texts_names_the_scorer_that_is_off(tmp_path: Path) -> None:
    text = "[selection.document]\ntop_2_gram = { max = 0.2 }\n"
    with pytest.raises(SettingsError, match="'document_top_2_gram' needs the score top_2_gram, which the scorer 'rep"):
        load_settings(write(tmp_path, text))
    settings = load_settings(write(tmp_path, '[documents]\nscorers = ["repetition"]\n' + text))
    assert settings.selection.document["top_2_gram"].max == 0.2


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ('on_fail = { nsfw = "sample" }', "selection.on_fail.nsfw"),
        ('text.words = {}\non_fail = { text_words = "sample" }', "selection.on_fail.text_words"),
        ('own.spoken = { field = "language" }', "selection.own.spoken"),
        ('own.brightness = {}\norder = ["brightness"]', "selection.order: brightness"),
    ],
)
def test_a_filter_that_is_named_and_has_no_bound_is_told(tmp_path: Path, lines: str, named: str) -> None:
    file = tmp_path / "interleaved.toml"
    file.write_text(f'[storage]\nraw_root = "raw"\noutput_root = "out"\n[selection]\n{lines}\n')
    with pytest.raises(SettingsError, match=rf"{re.escape(named)}: the filter has no bound and drops nothing"):
        load_settings(file)


def test_a_filter_with_a_bound_or_in_the_default_order_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "interleaved.toml"
    lines = 'text.words = { min = 2 }\non_fail = { text_words = "sample", sharpness = "sample" }\ndocument.words = {}\n'
    file.write_text(
        f'[storage]\nraw_root = "raw"\noutput_root = "out"\n[selection]\n{lines}order = ["sharpness", "qr", "aspect"]'
    )
    assert load_settings(file).selection.active_filters() == ("text_words", "sharpness", "qr")


@pytest.mark.parametrize(
    "name", ["interleaved_selektion__min_sharpness", "Interleaved_Selection__Min_Sharpnes", "interleaved_settings"]
)
def test_a_misspelt_variable_is_refused_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = write(tmp_path, "")
    monkeypatch.setenv("interleaved_selection__min_sharpness", "7")
    assert load_settings(file).selection.min_sharpness == 7
    monkeypatch.setenv(name, "8")
    with pytest.raises(SettingsError, match=f"{name}: no such setting"):
        load_settings(file)
