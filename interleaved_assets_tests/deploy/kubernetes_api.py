"""As much of a Kubernetes API server as dagster-k8s talks to: it keeps every job and runs its command here."""

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

_SCRIPTS = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: test, user: {{}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
"""


class KubernetesApi:
    """Jobs by the step that they run, as they came over the wire."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.jobs: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def create(self, job: dict[str, Any]) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        self.jobs[variables["DAGSTER_RUN_STEP_KEY"]] = job
        command, *arguments = container["args"]
        self.processes[job["metadata"]["name"]] = subprocess.Popen(
            [shutil.which(command, path=_SCRIPTS) or command, *arguments],
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def status(self, name: str) -> dict[str, Any]:
        code = self.processes[name].poll()
        status = {"active": 1} if code is None else {"succeeded": 1} if code == 0 else {"failed": 1}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "status": status}


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """A server on a free port of the loopback interface, with a kubeconfig that leads to it."""
    api = KubernetesApi(folder / "kubeconfig")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.create(job)
            self._answer(job)

        def do_GET(self) -> None:
            # /apis/batch/v1/namespaces/<namespace>/jobs/<name>/status
            self._answer(api.status(self.path.split("/")[7]))

        def _answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
            """Keeps the tests' output to the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.kubeconfig.write_text(KUBECONFIG.format(port=server.server_address[1]), encoding="utf-8")
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield api
        finally:
            server.shutdown()
            for process in api.processes.values():
                process.kill()
                process.wait()
