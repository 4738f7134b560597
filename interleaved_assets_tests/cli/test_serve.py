"""``interleaved serve`` as a process, from its first line to Ctrl-C."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from interleaved_assets.cli import main
from interleaved_assets.cli.commands.serve import PORT, port_of
from interleaved_assets.settings.sections import ServeSettings
from interleaved_assets_tests.documents import project
from interleaved_assets_tests.ports import free_port


def test_it_serves_until_ctrl_c(tmp_path: Path, curated: list[str]) -> None:
    port = free_port()
    command = [sys.executable, "-m", "interleaved_assets.cli", *curated, "serve", "--port", str(port), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {
            "url": f"http://127.0.0.1:{port}/",
            "output_root": f"{tmp_path}/out",
        }
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert b"2 shards on " in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("", PORT),
        ("http://127.0.0.1:3999/", 3999),
        ("http://localhost:3998", 3998),
        ("http://localhost", PORT),
        ("https://data.example:8443/curated", PORT),  # a proxy, which asks this port
    ],
)
def test_the_port_is_that_of_the_links(url: str, port: int) -> None:
    assert port_of(ServeSettings(url=url)) == port


@pytest.mark.parametrize("url", ["127.0.0.1:3010", "ftp://a/", "http://", "http://a/?x", "javascript:alert(1)"])
def test_what_is_no_address_is_refused(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path)
    (tmp_path / "wrong.toml").write_text(f"[serve]\nurl = {json.dumps(url)}\n")
    assert main(["--settings", str(tmp_path / "wrong.toml"), "status"]) == 2
    assert "serve.url" in capsys.readouterr().err
