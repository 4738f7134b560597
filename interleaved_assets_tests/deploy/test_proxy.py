"""deploy/proxy before two real webservers: what passes the door, and what does not."""

import base64
import json
import os
import shutil
import ssl
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interleaved_assets_tests.ports import end, free_ports, listens, wait_until_up

pytestmark = pytest.mark.system
_START_SECONDS = 60
_UNCHECKED = ssl.create_default_context()
_UNCHECKED.check_hostname = False
_UNCHECKED.verify_mode = ssl.CERT_NONE  # only Caddy knows its own authority

WIPE_NOTHING = "mutation { wipeAssets(assetPartitionRanges: []) { __typename } }"
VERSION = "{ version }"
EVERY_PATH = (
    "/",
    "/server_info",
    "/graphql?query=%7Bversion%7D",
    "/report_asset_materialization/toy",
    "/report_asset_check/toy",
    "/report_asset_observation/toy",
    "/logs/run/out",
    "/download_debug/run",
    "/notebook",
)


@dataclass(frozen=True)
class Door:
    """One address of the proxy, with the log-in of those who may pass."""

    port: int
    user: str
    password: str

    def headers(self, **more: str) -> dict[str, str]:
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {token}", **more}

    def answers(self) -> None:
        """Ask once.

        Raises:
            OSError: there is no answer; Caddy listens before it has made its certificate.
        """
        self.status("/", {})

    def status(self, path: str, headers: dict[str, str], body: bytes | None = None) -> int:
        return self.ask(path, headers, body)[0]

    def ask(self, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(f"https://localhost:{self.port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, context=_UNCHECKED, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def graphql(self, query: str) -> Any:
        status, body = self.ask(
            "/graphql", self.headers(**{"Content-Type": "application/json"}), json.dumps({"query": query}).encode()
        )
        assert status in (200, 400), body
        return json.loads(body)


@pytest.fixture(scope="module")
def doors(deploy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Door, Door]]:
    """The door for those who work and the one for viewers, each before its own webserver."""
    caddy = shutil.which("caddy") or pytest.skip("no Caddy: apt-get install caddy")
    home = tmp_path_factory.mktemp("proxy")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    (home / "toy.py").write_text("import dagster as dg\n\n@dg.asset\ndef toy(): ...\n", encoding="utf-8")
    edit, view, edit_at, view_at = free_ports(4)
    ui, viewer = Door(edit_at, "editor", "a long pass phrase"), Door(view_at, "viewer", "another pass phrase")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "HOME": str(home), "XDG_DATA_HOME": str(home)}
    proxied = environment | {
        "DAGSTER_UI_ADDRESS": f"https://localhost:{ui.port}",
        "DAGSTER_VIEW_ADDRESS": f"https://localhost:{viewer.port}",
        "DAGSTER_UI_UPSTREAM": f"127.0.0.1:{edit}",
        "DAGSTER_VIEW_UPSTREAM": f"127.0.0.1:{view}",
    }
    for name, door in (("UI", ui), ("VIEW", viewer)):
        hashed = subprocess.run(
            [caddy, "hash-password"], input=f"{door.password}\n", capture_output=True, text=True, check=True
        )
        proxied |= {f"DAGSTER_{name}_USER": door.user, f"DAGSTER_{name}_PASSWORD_HASH": hashed.stdout.strip()}
    webserver = [Path(sysconfig.get_path("scripts")) / "dagster-webserver", "-h", "127.0.0.1", "-f", "toy.py", "-p"]
    with ExitStack() as stack:
        for command, variables, answers in (
            # the first creates what is in DAGSTER_HOME, before the second looks for it
            ([*webserver, str(edit)], environment, lambda: listens(edit)),
            ([*webserver, str(view), "--read-only"], environment, lambda: listens(view)),
            (_caddy(caddy, deploy_folder), proxied, lambda: (ui.answers(), viewer.answers())),
        ):
            process = _start(command, variables, home)
            stack.callback(end, process)
            wait_until_up(process, answers, _START_SECONDS, home / "log")
        yield ui, viewer


def test_nothing_answers_without_a_log_in(doors: tuple[Door, Door]) -> None:
    for door in doors:
        assert {door.status(path, {}) for path in EVERY_PATH} == {401}
        assert {door.status(path, {}, b"{}") for path in EVERY_PATH} == {401}


def test_a_log_in_is_good_for_one_door(doors: tuple[Door, Door]) -> None:
    ui, viewer = doors
    assert ui.status("/server_info", ui.headers()) == 200
    assert viewer.status("/server_info", viewer.headers()) == 200
    assert ui.status("/server_info", viewer.headers()) == 401
    assert ui.status("/server_info", Door(ui.port, ui.user, "guess").headers()) == 401


def test_viewers_read_and_change_nothing(doors: tuple[Door, Door]) -> None:
    ui, viewer = doors
    assert viewer.graphql(VERSION)["data"]["version"] == ui.graphql(VERSION)["data"]["version"]
    assert ui.graphql(WIPE_NOTHING)["data"]["wipeAssets"]["__typename"] != "UnauthorizedError"
    assert viewer.graphql(WIPE_NOTHING)["data"]["wipeAssets"]["__typename"] == "UnauthorizedError"
    as_json = {"Content-Type": "application/json"}
    assert ui.status("/report_asset_materialization/toy", ui.headers(**as_json), b"{}") == 200
    assert viewer.status("/report_asset_materialization/toy", viewer.headers(**as_json), b"{}") >= 400


def test_the_websocket_needs_the_log_in(doors: tuple[Door, Door]) -> None:
    ui, _ = doors
    address = f"wss://localhost:{ui.port}/graphql"
    with pytest.raises(InvalidStatus, match="401"), connect(address, ssl=_UNCHECKED, subprotocols=["graphql-ws"]):
        pass
    with connect(
        address, ssl=_UNCHECKED, subprotocols=["graphql-ws"], additional_headers=ui.headers()
    ) as socket_to_graphql:
        socket_to_graphql.send(json.dumps({"type": "connection_init", "payload": {}}))
        assert json.loads(socket_to_graphql.recv(timeout=60))["type"] == "connection_ack"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_cannot_use_the_log_in_that_a_browser_remembers(doors: tuple[Door, Door], site: str) -> None:
    ui, _ = doors
    foreign = ui.headers(**{"Sec-Fetch-Site": site, "Content-Type": "application/json"})
    assert ui.status("/graphql", foreign, json.dumps({"query": VERSION}).encode()) == 403
    assert ui.status("/report_asset_materialization/toy", foreign, b"{}") == 403
    with (
        pytest.raises(InvalidStatus, match="403"),
        connect(
            f"wss://localhost:{ui.port}/graphql",
            ssl=_UNCHECKED,
            subprotocols=["graphql-ws"],
            additional_headers=ui.headers(**{"Sec-Fetch-Site": site}),
        ),
    ):
        pass
    # a link to the UI in a mail still opens it
    assert ui.status("/runs", foreign) == 200


def test_without_users_everyone_is_refused(deploy_folder: Path, tmp_path: Path) -> None:
    """A missing variable must not give access."""
    caddy = shutil.which("caddy") or pytest.skip("no Caddy: apt-get install caddy")
    (port, other) = free_ports(2)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_UI_", "DAGSTER_VIEW_"))
    } | {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "DAGSTER_UI_ADDRESS": f"https://localhost:{port}",
        "DAGSTER_VIEW_ADDRESS": f"https://localhost:{other}",
    }
    process = _start(_caddy(caddy, deploy_folder), environment, tmp_path)
    try:
        wait_until_up(process, Door(port, "", "").answers, _START_SECONDS, tmp_path / "log")
        for door in (Door(port, "", ""), Door(port, "admin", "admin")):
            assert door.status("/server_info", door.headers()) == 401
    finally:
        end(process)


def _caddy(program: str, deploy_folder: Path) -> list[Any]:
    return [program, "run", "--config", deploy_folder / "proxy/Caddyfile", "--adapter", "caddyfile"]


def _start(command: list[Any], environment: dict[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
