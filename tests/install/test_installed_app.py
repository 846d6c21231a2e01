"""The installed app: it answers on this machine alone, asks nobody, and merges what a page orders."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from app_server import find_free_port, serve_with
from browser_tab import PATIENCE, new_tab
from installed_package import Environment, clean_variables
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.full, pytest.mark.browser]
# What a folder may hold in which somebody starts the command.
HOSTILE_SETTINGS = """[server]
address = "0.0.0.0"
port = 80
baseUrlPath = "x"
allowedHosts = ["*"]
corsAllowedOrigins = ["https://evil.example"]
enableAgentApi = true
enableStaticServing = true
enableXsrfProtection = false
sslCertFile = "cert.pem"
sslKeyFile = "key.pem"
[browser]
gatherUsageStats = true
serverAddress = "evil.example"
serverPort = 80
[client]
allowedOrigins = ["https://evil.example"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another program's settings and module, in which the app is started."""
    made = tmp_path_factory.mktemp("somewhere")
    (made / ".streamlit").mkdir()
    (made / ".streamlit" / "config.toml").write_text(HOSTILE_SETTINGS)
    (made / "app.py").write_text("raise SystemExit('another program')\n")
    return made


@pytest.fixture(scope="module")
def address(installed: Environment, folder: Path) -> Iterator[str]:
    """The address of ``mergescope app``."""
    port = find_free_port()
    command = [str(installed.command), "app", "--no-browser", "--port", str(port)]
    environment = clean_variables() | {"MERGESCOPE_STORE": str(folder / "store")}
    with serve_with(command, environment, port, folder, cwd=folder) as url:
        yield url


def test_it_listens_on_this_machine_and_refuses_foreign_names(address: str) -> None:
    port = urlsplit(address).port
    listening = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    socket = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    asked = {
        "own name": ("GET", "/", {"Host": "localhost"}),
        "foreign name": ("GET", "/", {"Host": "evil.example"}),
        "own page": ("GET", "/_stcore/stream", socket | {"Origin": address}),
        "foreign page": ("GET", "/_stcore/stream", socket | {"Origin": "https://evil.example"}),
        "program": ("POST", "/_stcore/agent/interact", {}),
    }
    answers = {}
    for name, (method, path, headers) in asked.items():
        with contextlib.closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)) as line:
            line.request(method, path, headers=headers)
            answers[name] = line.getresponse().status
    assert answers == {"own name": 200, "foreign name": 403, "own page": 101, "foreign page": 403, "program": 403}
    with urllib.request.urlopen(f"{address}/_stcore/host-config", timeout=30) as answer:
        assert json.load(answer)["allowedOrigins"] == []


def test_a_merge_from_a_page_is_stored(address: str, folder: Path, chromium: Browser) -> None:
    with contextlib.closing(chromium.new_context(viewport={"width": 1400, "height": 1100})) as context:
        app = new_tab(context, address)
        app.open("/").page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
        app.open("/masks").charted()
        app.open("/merge?chain=lwptv%3Aprune_ratio%3D0.55%3Btask_arithmetic&experts=digits,signs")
        preview = app.page.locator(".st-key-preview_merge")
        preview.get_by_role("button", name="Preview").click()
        numbers = app.page.locator(".st-key-preview_result_merge [data-testid=stMetricValue]")
        expect(numbers).to_have_count(3, timeout=PATIENCE)
        app.page.get_by_role("button", name="Run", exact=True).click()
        expect(app.page.locator(".st-key-result")).to_contain_text("H-score", timeout=PATIENCE)
        assert not app.outside() and not app.problems
    (run,) = (folder / "store" / "runs").iterdir()
    assert (run / "scores.csv").is_file() and "prune_ratio: 0.55" in (run / "recipe.yaml").read_text("utf-8")
