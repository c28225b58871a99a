"""The explorer in JupyterLab, driven in headless Chromium as a person would: choose, run, watch, stop, browse."""

import importlib.util
import os
import re
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
SLEEPER = """
import subprocess, sys, time
import torch
from capturebook.subjects import Step

def build(kernel=None, overlap=None, sync=None, graph_break=None, batch=None):
    def fn(x):
        orphan = "import os,time; os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
        subprocess.run([sys.executable, "-c", orphan, "orphan"])
        time.sleep(600)
    return Step(fn=fn, make_inputs=lambda seed: (torch.ones(1),), reference=lambda x: x)
"""
"""A step that never comes back, with a grandchild that leaves session and parent."""


@pytest.fixture
def root(tmp_path, repo) -> Path:
    """A repository with presets, the explorer, a step that never comes back, and one finished run."""
    root = tmp_path / "root"
    (root / "notebooks").mkdir(parents=True)
    shutil.copytree(repo / "params", root / "params")
    shutil.copy(repo / "notebooks" / "explorer.ipynb", root / "notebooks")
    (root / "notebooks" / "sleeper.py").write_text(SLEEPER)
    fake_run.gpu_run(root / "outputs" / "finished")
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


def words(process: psutil.Process) -> list[str]:
    """Its command line; nothing for one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def begun_for(root: Path, process: psutil.Process) -> bool:
    """Whether a process is the guard of a probe whose run folder is under `root`."""
    line = words(process)
    return "capturebook.chain.guard" in line and any(str(root) in word for word in line)


def control(page, name: str, kind: str):
    return page.locator(f'.widget-inline-hbox:has(label:text-is("{name}")) {kind}')


def type_into(page, name: str, text: str) -> None:
    """Type it; the field holds it and says so while it is being typed, before Enter."""
    from playwright.sync_api import expect

    field = control(page, name, "input")
    field.fill(text)
    expect(field).to_have_value(text)
    expect(page.locator(".jp-RenderedText pre").filter(has_text=text).first).to_be_visible()


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
        # The last cell has run: nothing scrolls under what is typed from here on.
        expect(page.locator(".jp-CodeCell .jp-InputPrompt").last).to_have_text(re.compile(r"\[\d+\]:"), timeout=30_000)
        said = page.locator(".jp-RenderedText pre")

        control(page, "compile", "select").select_option("max-autotune-no-cudagraphs")
        type_into(page, "batch", "many")
        expect(run).to_be_disabled()
        expect(said.filter(has_text="batch='many'")).to_be_visible()
        page.screenshot(path=pictures / "explorer-bad-value.png")
        type_into(page, "batch", "8")
        expect(said.filter(has_text="command ")).to_contain_text("compile=max-autotune-no-cudagraphs")
        expect(said.filter(has_text="command ")).to_contain_text("batch=8")
        expect(run).to_be_enabled()
        page.screenshot(path=pictures / "explorer-chosen.png")

        type_into(page, "target", "sleeper.py:build")
        for name in ("compile", "capture"):
            control(page, name, "select").select_option("none")
        expect(said.filter(has_text="command ")).to_contain_text("probe sleeper.py:build")
        run.click()
        expect(said.filter(has_text="command ")).to_contain_text("in warmup", timeout=60_000)
        expect(run).to_be_disabled()
        page.screenshot(path=pictures / "explorer-running.png")
        guard = next(p for p in psutil.process_iter() if begun_for(root, p))
        wait_until(lambda: any("orphan" in words(p) for p in guard.children(recursive=True)), "no grandchild")
        tree = [guard, *guard.children(recursive=True)]
        assert len(tree) >= 6, "guard, command line, fork server, supervisor, probe, orphan"
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
