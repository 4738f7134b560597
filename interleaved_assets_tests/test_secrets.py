"""A secret that is planted wherever settings have room for one comes out nowhere: it is refused, without being named.

What the settings do take is run through the chain, and every file, event and log of it is searched.
"""

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from interleaved_assets.cli import main
from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.io.storage import exists, filesystem
from interleaved_assets.io.storage.options import find_unlisted
from interleaved_assets.model.errors import InterleavedError, OptionError, SettingsError
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.defs.runs import STAGES, run_chain
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard

CANARY = "c4n4ry"
URLS = (
    f"https://user:{CANARY}@host/x",
    f"https://{CANARY}@host/x",
    f"s3://key:{CANARY}/with+slash@bucket/x",
    f"sftp://user:{CANARY}@host/x",
    f"abfs://container:{CANARY}@account.dfs.core.windows.net/x",
    f"simplecache::https://user:{CANARY}@host/x",
    f"https://host/x?X-Amz-Signature={CANARY}",
    f"s3://bucket/x?sig={CANARY}",
    f"https://host/x#access_token={CANARY}",
)
PLACES = (
    "storage.raw_root",
    "storage.output_root",
    "storage.options.endpoint_url",
    "storage.options.client_kwargs.endpoint_url",
    "clip.model",
    "clip.pretrained",
    "clip.model_config_path",
    "clip.heads.taste.path",
)
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"key": CANARY},
    {"Authorization": CANARY},
    {"auth": [CANARY, CANARY]},
    {"passwd": CANARY},
    {"apikey": CANARY},
    {"bearer": CANARY},
    {"pin": int(CANARY, 36)},
    {"host": f"user:{CANARY}@host"},
    {"client_kwargs": {"headers": {"X-Own": CANARY}}},
    {"client_kwargs": {"auth": {"login": CANARY}}},
    {"client_kwargs": CANARY},
    {"client_kwargs": [{"password": CANARY}]},
    {"config_kwargs": {"proxies": {"https": f"http://u:{CANARY}@proxy"}}},
    {"s3_additional_kwargs": {"SSECustomerKey": CANARY}},
    {"endpoint_url": {"x": CANARY}},
    {"token": CANARY},
    {"token": {"private_key": CANARY}},
)
WRONG_TYPES: tuple[Mapping[str, Any], ...] = (
    {"storage": CANARY},
    {"storage": [CANARY]},
    {"storage": {"options": CANARY}},
    {"storage": {"options": [{"password": CANARY}]}},
    {"storage": {"raw_root": [f"https://u:{CANARY}@h/x"]}},
    {"storage": {"raw_root": {"url": CANARY}}},
    {"storage": {"password": CANARY}},
    {"clip": {"pretrained": {"url": CANARY}}},
    {"clip": {"heads": f"https://u:{CANARY}@h/x"}},
    {"clip": {"heads": {"taste": f"https://u:{CANARY}@h/x"}}},
    {"clip": {"heads": {"taste": {"path": [CANARY]}}}},
    {"clip": {"threads": f"https://u:{CANARY}@h/x?sig={CANARY}"}},
    {"password": CANARY},
)


def nested(name: str, value: object) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def refusal(
    given: Mapping[str, Any],
    way: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """The message with which settings are refused; all that could be printed of it has no canary."""
    file = folder / "interleaved.toml"
    file.write_text("\n".join(_toml(given)) if way == "file" else "")
    if way == "environment":
        for section, values in given.items():
            text = values if isinstance(values, str) else json.dumps(values)
            monkeypatch.setenv(f"INTERLEAVED_{section.upper()}", text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert main(["--settings", str(file), "settings"]) == 2
    printed = capsys.readouterr()
    # Dagster prints a failed load with its whole chain of exceptions
    text = "".join(traceback.format_exception(caught.value))
    assert CANARY not in text + printed.out + printed.err
    return str(caught.value)


def _toml(given: Mapping[str, Any]) -> Iterator[str]:
    for section, values in given.items():
        if isinstance(values, Mapping):
            yield f"[{section}]"
            yield from (f"{name} = {_inline(value)}" for name, value in values.items())
        else:
            yield f"{section} = {_inline(values)}"


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {_inline(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("way", ["file", "environment"])
@pytest.mark.parametrize("place", PLACES)
def test_a_url_with_credentials_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, way: str
) -> None:
    for url in URLS:
        message = refusal(nested(place, url), way, tmp_path, monkeypatch, capsys)
        assert f"{place} has a " in message
        assert "in the environment" in message


@pytest.mark.parametrize("way", ["file", "environment"])
@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
def test_an_option_that_may_be_secret_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: Mapping[str, Any],
    way: str,
) -> None:
    message = refusal({"storage": {"options": options}}, way, tmp_path, monkeypatch, capsys)
    assert f"storage.options.{next(iter(options))}" in message
    assert "in the environment" in message


@pytest.mark.parametrize("way", ["file", "environment"])
@pytest.mark.parametrize("given", WRONG_TYPES, ids=json.dumps)
def test_a_value_of_a_wrong_type_is_not_repeated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: Mapping[str, Any],
    way: str,
) -> None:
    refusal(given, way, tmp_path, monkeypatch, capsys)


def test_settings_made_in_python_do_not_repeat_values_either() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(storage={"options": CANARY})  # type: ignore[arg-type]  # the wrong type is what is tested
    assert CANARY not in str(caught.value)


def test_public_options_are_taken(tmp_path: Path) -> None:
    options = {
        "anon": False,
        "endpoint_url": "http://127.0.0.1:9000",
        "client_kwargs": {"region_name": "eu-west-1", "verify": "/etc/ca.pem"},
        "config_kwargs": {"retries": {"max_attempts": 3}, "s3": {"addressing_style": "path"}},
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"},
        "token": "google_default",
    }
    file = tmp_path / "interleaved.toml"
    file.write_text("\n".join(_toml({"storage": {"options": options}})))
    assert load_settings(file).storage.options == options
    assert find_unlisted(options) is None


def test_what_was_refused_can_be_given_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # the advice that the refusal gives: fsspec reads FSSPEC_<SCHEME>_<OPTION> itself, once when it is imported
    from fsspec.config import set_conf_env

    conf: dict[str, dict[str, str]] = {}
    set_conf_env(conf, {"FSSPEC_SFTP_PASSWORD": CANARY, "FSSPEC_HTTPS": json.dumps({"headers": {"X": CANARY}})})
    assert conf == {"sftp": {"password": CANARY}, "https": {"headers": {"X": CANARY}}}


@pytest.mark.parametrize("url", [url for url in URLS if "@" in url])
def test_no_storage_is_reached_by_a_url_with_a_user(url: str) -> None:
    for act in (filesystem, exists, lambda uri: list(InterleavedWebdatasetReader(uri))):
        with pytest.raises(OptionError, match="the URL has a user or password in it") as caught:
            act(url)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_the_chain_leaves_no_canary_anywhere(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Settings made in Python are not refused: whatever their options hold, nothing of it gets out."""
    caplog.set_level(logging.INFO)
    write_shard(tmp_path / "raw/a.tar", {"one": document("text", sharp_image(1))})
    write_shard(tmp_path / "raw/b.tar", {"one": document("text", b"no image")})
    loaded = project(tmp_path)
    options = {"secret": CANARY, "client_kwargs": {"aws_session_token": CANARY}}
    settings = loaded.model_copy(update={"storage": loaded.storage.model_copy(update={"options": options})})
    with dg.DagsterInstance.ephemeral() as instance:
        assert not run_chain(instance, settings, ["a", "b"]).success
        events = [entry.to_json() for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    statuses = list(read_dataset_status(settings).shards())
    assert len(events) > len(STAGES)
    for arguments in (["trace", "one"], ["trace", "--tar", str(tmp_path / "out/tars/a.tar")]):
        main(["--settings", str(tmp_path / "interleaved.toml"), *arguments])
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"final_tars", "tars"} <= {part for path in written for part in path.parts}
    found = [str(path) for path in written if CANARY.encode() in path.read_bytes()]
    printed = capfd.readouterr()
    assert found == []
    for text in (*events, str(statuses), *caplog.messages, printed.out, printed.err):
        assert CANARY not in text


def test_an_error_names_a_url_without_its_query() -> None:
    with pytest.raises(InterleavedError, match=r"https://127\.0\.0\.1:9/a\.tar") as caught:
        list(InterleavedWebdatasetReader(f"https://127.0.0.1:9/a.tar?sig={CANARY}"))
    assert CANARY not in str(caught.value)
