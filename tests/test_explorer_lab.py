"""The explorer in JupyterLab, driven in headless Chromium as a person would: choose, run, watch, stop, browse."""

import importlib.util
import json
import os
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

import fake_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name in ("jupyterlab", "playwright", "ipywidgets") if importlib.util.find_spec(name) is None]
if not CHROMIUM or MISSING:
    pytest.skip(f"needs {', '.join(MISSING) or 'chromium on the PATH'}", allow_module_level=True)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic"]
STANDIN = Path(__file__).with_name("explorer_standin.py")


@pytest.fixture
def root(tmp_path, repo) -> Path:
    """A repository with presets, the explorer and one finished run. Its probes are the stand-in's, which never end."""
    root = tmp_path / "root"
    (root / "notebooks").mkdir(parents=True)
    shutil.copytree(repo / "params", root / "params")
    fake_run.gpu_run(root / "outputs" / "finished")
    notebook = json.loads((repo / "notebooks" / "explorer.ipynb").read_text())
    made = next(i for i, cell in enumerate(notebook["cells"]) if cell["id"] == "probe-make")
    notebook["cells"][made]["source"].append(f"\npanel.command = {[sys.executable, str(STANDIN), 'hang']}")
    (root / "notebooks" / "explorer.ipynb").write_text(json.dumps(notebook))
    return root


@pytest.fixture
def lab(root, tmp_path):
    """JupyterLab on a free port of 127.0.0.1; its address. It asks nobody for news, updates or extensions."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = [
        "--allow-root", "--no-browser", "--ServerApp.token=", "--ServerApp.password=", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", f"--ServerApp.root_dir={root}", "--LabApp.extension_manager=readonly",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    places["JUPYTERLAB_SETTINGS_DIR"] = str(tmp_path / "settings")
    asks_no_news = tmp_path / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    asks_no_news.parent.mkdir(parents=True)
    asks_no_news.write_text('{"fetchNews": "false"}')
    environment = {**os.environ, **places, "CAPTUREBOOK_ROOT": str(root), "HOME": str(tmp_path)}
    with open(tmp_path / "lab.log", "wb") as log:
        server = psutil.Popen([sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=log, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(f"{address}/api"), f"JupyterLab did not start: {tmp_path / 'lab.log'}")
        yield address
    finally:
        tree = [server, *server.children(recursive=True)]
        server.terminate()
        for process in psutil.wait_procs(tree, timeout=10)[1]:
            process.kill()


def answers(url: str) -> bool:
    try:
        return urllib.request.urlopen(url, timeout=2).status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def wait_until(true, said: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, said
        time.sleep(0.1)


def control(page, name: str, kind: str):
    return page.locator(f'.widget-inline-hbox:has(label:text-is("{name}")) {kind}')


def test_choose_run_watch_stop_browse(root, lab, tmp_path):
    from playwright.sync_api import expect, sync_playwright

    pictures = Path(os.environ.get("CAPTUREBOOK_SCREENSHOTS", tmp_path))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.goto(f"{lab}/lab/tree/notebooks/explorer.ipynb")
        # Asked to run before its kernel is there, JupyterLab asks which kernel.
        expect(page.locator(".jp-StatusBar-Widget", has_text="Idle")).to_be_visible(timeout=30_000)
        page.locator(".lm-MenuBar-item", has_text="Run").click()
        page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
        run, stop = (page.get_by_role("button", name=name) for name in ("Run one probe", "Stop"))
        expect(run).to_be_enabled(timeout=30_000)
        said = page.locator(".jp-RenderedText pre")

        control(page, "compile", "select").select_option("max-autotune-no-cudagraphs")
        control(page, "batch", "input").fill("many")
        control(page, "batch", "input").press("Enter")
        expect(run).to_be_disabled()
        expect(said.filter(has_text="batch='many'")).to_be_visible()
        page.screenshot(path=pictures / "explorer-bad-value.png")
        control(page, "batch", "input").fill("8")
        control(page, "batch", "input").press("Enter")
        expect(said.filter(has_text="command ")).to_contain_text("compile=max-autotune-no-cudagraphs")
        expect(said.filter(has_text="command ")).to_contain_text("batch=8")
        expect(run).to_be_enabled()
        page.screenshot(path=pictures / "explorer-chosen.png")

        run.click()
        expect(said.filter(has_text="command ")).to_contain_text("in capture", timeout=20_000)
        expect(run).to_be_disabled()
        page.screenshot(path=pictures / "explorer-running.png")
        hanging = list(root.glob("outputs/*/hanging"))
        child = psutil.Process(int(hanging[0].read_text()))
        tree = [child.parent(), *child.parent().children(recursive=True)]
        assert len(tree) >= 3
        stop.click()
        expect(said.filter(has_text="command ")).to_contain_text("stopped by you", timeout=20_000)
        assert [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
        expect(run).to_be_enabled()
        page.screenshot(path=pictures / "explorer-stopped.png")

        control(page, "show", "select").select_option("status fail")
        records = page.locator(".capturebook-records select")
        records.select_option(records.locator("option", has_text="905").first.text_content())
        expect(said.filter(has_text="cudaErrorStreamCaptureIsolation")).to_contain_text("stage capture")
        records.scroll_into_view_if_needed()
        page.screenshot(path=pictures / "explorer-browse.png")
        browser.close()
