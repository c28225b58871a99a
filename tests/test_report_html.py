"""report.html and the rendered notebooks: what they say, that nothing hostile survives, that they load nothing."""

import html.parser
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

import fake_run
from capturebook.records import Arm, append
from capturebook.report import html as report
from capturebook.report import rendered, run_data, sections, summary, tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<script>document.title='owned'</script><img src=http://x.invalid/y.png onerror=alert(1)>"


class Outline(html.parser.HTMLParser):
    """Tags with their attributes, and the text as it is read."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.text = [], ""
        self._silent = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._silent = tag in ("style", "title")

    def handle_data(self, data):
        self.text += "" if self._silent else data + " "

    def named(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(path: Path) -> Outline:
    return Outline(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def gpu(tmp_path_factory) -> Path:
    """A finished run that decides, with a hostile parameter, a hostile log name and an executed hostile notebook."""
    path = fake_run.gpu_run(tmp_path_factory.mktemp("gpu") / "run")
    info = json.loads((path / "run.json").read_text())
    info["parameters"]["subject"] = HOSTILE
    (path / "run.json").write_text(json.dumps(info))
    clock = fake_run.Clock()
    odd = fake_run.step(fake_run.arm("cold_live"), clock, 900, "02_graph_capture", role="repeat", seed=9)
    link = odd.chain[-1].model_copy(update={"text": HOSTILE})
    append(path / "records.jsonl", odd.model_copy(update={"chain": [link], "log": "javascript:alert(1)"}))
    (path / "notebooks").mkdir()
    nbformat.write(hostile_notebook(), path / "notebooks" / "02_graph_capture.ipynb")
    rendered.render_notebooks(path)
    report.build(path)
    return path


@pytest.fixture(scope="module")
def cpu(tmp_path_factory) -> Path:
    path = fake_run.cpu_run(tmp_path_factory.mktemp("cpu") / "run")
    report.build(path)
    return path


@pytest.fixture
def head_alone(monkeypatch):
    """Pages without their sections, whose figures take most of a second each."""
    monkeypatch.setattr(report, "sections", lambda data: [])


def hostile_notebook():
    v4 = nbformat.v4
    figure = '<figure><img src="data:image/png;base64,AAAA" alt="seen"><figcaption>kept</figcaption></figure>'
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "text/plain": "IntSlider(value=0)"}
    outputs = [
        v4.new_output("display_data", {"text/html": HOSTILE + figure, "text/plain": "x"}),
        v4.new_output("display_data", {"application/javascript": "alert(2)", "text/plain": "plain twin"}),
        v4.new_output("display_data", {"image/svg+xml": '<svg onload="alert(3)"></svg>', "text/plain": "an svg"}),
        v4.new_output("display_data", widget),
        v4.new_output("stream", text=HOSTILE),
    ]
    cells = [
        v4.new_markdown_cell(f"# Title\n\n{HOSTILE}\n\n[a link](javascript:alert(4)) $x^2$"),
        v4.new_code_cell("print('<b>')", outputs=outputs),
    ]
    return v4.new_notebook(cells=cells)


def test_the_verdict_comes_first_in_words(gpu):
    page = read(gpu / "report.html").text
    assert page.index("The stack is at fault, not the kernel") < page.index("Rivals: predicted and seen")
    for part in (
        "905 cudaErrorStreamCaptureIsolation",
        "B5 : torch.compile drops the step's stream code (rule 5)",
        "sync=event passes",
        "NVIDIA H200",
    ):
        assert part in page
    assert "neither was right" in page


def test_rivals_are_scored_arm_by_arm(gpu):
    page = read(gpu / "report.html").text
    data = run_data.RunData.open(gpu)
    from capturebook.attribution import neither_right, score

    scores = score(data.hypothesis, data.records)
    for rival in scores:
        assert f"{rival.held} of {rival.total} predictions held" in page
    assert page.count("neither was right") == len(neither_right(scores))


def test_without_a_gpu_it_opens_with_what_was_not_decided(cpu, gpu):
    page = read(cpu / "report.html").text
    opening = page[page.index("Verdict") : page.index("Rivals: predicted and seen")]
    for part in ("Not decided on this machine", "no CUDA GPU: no NVIDIA driver", "probes skipped or not run"):
        assert part in opening
    assert "23 of 24 builds fit" in opening and "2 of 2 kernels right" in opening and "1 graph break counted" in opening
    data = run_data.RunData.open(cpu)
    lines = summary.opening(data)
    assert lines[0] == "Not decided on this machine."
    assert f"{len(data.skipped)} of {len(data.probes)} probes skipped or not run." in lines
    with_sample = Outline(report.render(data, run_data.RunData.open(gpu))).text
    assert with_sample.index("Not decided on this machine") < with_sample.index(
        "Recorded elsewhere, not on this machine"
    )
    assert "which is not the present code" in with_sample


def test_only_a_run_of_the_same_question_is_shown_apart(cpu, gpu, monkeypatch, head_alone):
    """The recorded run says nothing about another subject, hypothesis or question."""
    monkeypatch.setattr(run_data, "SAMPLE", str(gpu))
    data = run_data.RunData.open(cpu)
    theirs = json.loads((gpu / "run.json").read_text())
    mine = {**data.info, "parameters": {**data.info["parameters"], "subject": theirs["parameters"]["subject"]}}
    same = replace(data, info=mine)
    assert run_data.sample_run(same).path == gpu
    assert run_data.sample_run(replace(same, path=gpu)) is None
    asked = {**mine["question"], "error": 900}
    for other in (
        replace(same, info={**mine, "parameters": {**mine["parameters"], "subject": "mine.py:build"}}),
        replace(same, info={**mine, "parameters": {**mine["parameters"], "cache": "fp8"}}),
        replace(same, info={**mine, "parameters": {**mine["parameters"], "env": {"TORCHINDUCTOR_CUDAGRAPHS": "0"}}}),
        replace(same, info={**mine, "question": asked}),
        replace(same, hypothesis={**data.hypothesis, "name": "own_kernel"}),
    ):
        assert run_data.sample_run(other) is None
        assert "Recorded elsewhere" not in report.render(other, run_data.sample_run(other))


def test_the_head_names_a_users_own_step_and_no_folder_of_the_machine(cpu, head_alone):
    data = run_data.RunData.open(cpu)
    assert "The step:" not in report.render(data), "the built-in one needs no name"
    given = {**data.info["parameters"], "subject": "/srv/someone/kernels/mine.py:build", "options": {"width": 64}}
    page = Outline(report.render(replace(data, info={**data.info, "parameters": given}))).text
    head = page[: page.index("Verdict")]
    assert "build  in  kernels/mine.py , with  width=64" in head and "someone" not in head


def test_what_the_fix_costs_stands_beside_it(gpu, head_alone):
    data = run_data.RunData.open(gpu)
    lost = {"caveats": ["overlap lost: the captured graph is one chain"]}
    whole = [r.model_copy(update=lost) if r.arm == fake_run.arm("events") else r for r in data.whole]
    page = Outline(report.render(replace(data, whole=whole))).text
    assert page.index("Verdict") < page.index("With the fix") < page.index("Gain")


def test_what_has_nothing_to_say_is_left_out(tmp_path):
    """A probe without a GPU: no arm ran, nothing was built, and one trace is no timeline."""
    clock = fake_run.Clock()
    why = "needs a CUDA GPU, and this machine has none"
    skipped = fake_run.step(fake_run.arm("events"), clock, None, "")
    skipped = skipped.model_copy(update=dict(status="skipped", reason=why, samples={}, checks=[], caveats=[]))
    payload = {"calls": 4, "breaks": [], "recompiles": [], "torch": "2.13.0"}
    traced = fake_run.record("trace", clock, a=Arm(compile="eager", capture="none"), payload=payload)
    provenance = {**fake_run.PROVENANCE, "gpu": None, "commit": None, "no_gpu": "no NVIDIA driver"}
    path = fake_run.write(tmp_path / "run", [skipped, traced], provenance=provenance)
    data = run_data.RunData.open(path)
    page = report.render(data)
    titles = [section.title for section in sections.sections(data)]
    assert "Traced by Dynamo, as for a GPU" in titles and "What did not run, and why" in titles
    left_out = {"Rivals: predicted and seen", "Kernels as compiled", "Compiled for the CPU", "When it ran"}
    assert not left_out & set(titles)
    assert "1 probes" not in page and "no rows" not in page
    assert '<th scope="row">commit</th>' not in page and '<th scope="row">code</th>' in page


def test_a_decided_run_shows_no_other_runs_verdict(gpu, head_alone):
    data = run_data.RunData.open(gpu)
    assert "Recorded elsewhere" not in report.render(data, data)


def test_every_image_has_a_text_alternative_and_its_data(gpu):
    page = read(gpu / "report.html")
    images = page.named("img")
    assert len(images) == 4
    assert all(image["src"].startswith("data:image/svg+xml;base64,") and len(image["alt"]) > 60 for image in images)
    assert len(page.named("figcaption")) == 4 and page.named("html")[0]["lang"] == "en"
    headings = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3")]
    assert headings.count(1) == 1 and headings[0] == 1


def test_links_lead_to_logs_and_notebooks_that_are_there(gpu):
    targets = [a["href"] for a in read(gpu / "report.html").named("a")]
    files = [t for t in targets if not t.startswith("#")]
    assert any(t.startswith("logs/") for t in files) and "notebooks/02_graph_capture.html" in files
    assert all((gpu / t).is_file() for t in files)


@pytest.mark.parametrize("name", ["report.html", "notebooks/02_graph_capture.html"])
def test_nothing_hostile_survives(gpu, name):
    page = read(gpu / name)
    assert not page.named("script") and not page.named("svg") and not page.named("iframe")
    assert "owned" in page.text, "it is shown as text, not dropped"
    for tag, attributes in page.tags:
        assert not [a for a in attributes if a.startswith("on")], (tag, attributes)
        for attribute in ("href", "src"):
            value = attributes.get(attribute) or ""
            assert not value.startswith(("javascript:", "http:", "//")), (tag, value)


def test_a_notebooks_figures_and_plain_twins_are_kept(gpu):
    page = read(gpu / "notebooks" / "02_graph_capture.html")
    assert "seen" in [image["alt"] for image in page.named("img") if image.get("src")]
    for part in ("kept", "plain twin", "an svg", "IntSlider(value=0)", "Title"):
        assert part in page.text


def test_a_notebooks_page_finds_the_logs_that_it_links(tmp_path):
    records = [r for r in fake_run.step_records(fake_run.Clock()) if r.role == "control"]
    path = fake_run.write(tmp_path / "run", records)
    shown = nbformat.v4.new_output("display_data", {"text/html": tables.evidence(records)._repr_html_()})
    (path / "notebooks").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("tables.evidence(controls)", outputs=[shown])])
    nbformat.write(notebook, path / "notebooks" / "02_graph_capture.ipynb")
    (page,) = rendered.render_notebooks(path)
    links = [a["href"] for a in read(page).named("a") if "log" in a["href"]]
    assert len(links) == len(records) and all((page.parent / link).is_file() for link in links)


def test_a_figure_for_narrow_screens_stays_in_a_notebooks_page_and_loads_nothing():
    data = "data:image/svg+xml;base64,AAAA"
    narrow = '<picture><source media="(max-width: 640px)" srcset="{}"><img src="{}" alt="seen"></picture>'
    kept = Outline(rendered.clean(narrow.format(data, data)))
    assert kept.named("source") == [{"media": "(max-width: 640px)", "srcset": data}]
    assert kept.named("img") == [{"src": data, "alt": "seen"}]
    for hostile in ("http://x.invalid/y.png", f"{data} 1x, http://x.invalid/y.png 2x"):
        assert "srcset" not in rendered.clean(narrow.format(hostile, data))


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run.json; it is not a run folder"):
        report.build(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="run.json is damaged"):
        report.build(tmp_path)


def test_records_of_another_nonce_are_named_and_do_not_count(tmp_path):
    path = fake_run.gpu_run(tmp_path / "run")
    foreign = fake_run.step(fake_run.arm("events"), fake_run.Clock(), 905, "03").model_copy(update={"nonce": "other"})
    append(path / "records.jsonl", foreign)
    (path / "records.jsonl").open("ab").write(b'{"torn')
    data = run_data.RunData.open(path)
    assert foreign not in data.records and data.verdict["class"] == "B5"
    page = Outline(report.render(data)).text
    assert "carries another run's nonce" in page and "does not parse" in page


def test_a_record_that_the_tables_cannot_read_is_named_and_set_aside(tmp_path):
    """So is one whose probe has an earlier record that they can: that one counts."""
    build, sweep = fake_run.build_records(fake_run.Clock())[0], fake_run.sweep_records(fake_run.Clock())[0]
    options = {**sweep.subject.options, "variants": {"simt": {"kernel": 7}}}
    untold = build.subject.model_copy(update={"options": {"index": 0}})
    damaged = [
        (build, {"payload": {}}, "registers"),
        (build, {"payload": {**build.payload, "shared": None}}, "shared"),
        (build, {"subject": untold, "status": "fail", "payload": {}}, "kernel"),
        (sweep, {"payload": {}}, "tokens_per_second"),
        (sweep, {"payload": {**sweep.payload, "variants": None}}, "variants"),
        (sweep, {"payload": {**sweep.payload, "floor_us": "x"}}, "floor_us"),
        (sweep, {"subject": sweep.subject.model_copy(update={"options": options})}, "kernel"),
        (fake_run.record("interpret", fake_run.Clock(), payload={"error": "x"}), {}, "error"),
        (fake_run.record("counters", fake_run.Clock(), payload={}), {}, "shape"),
    ]
    for number, (good, change, name) in enumerate(damaged):
        bad = good.model_copy(update=change)
        data = run_data.RunData.open(fake_run.write(tmp_path / f"run{number}", [build, sweep, bad]))
        assert data.records == [build, sweep]
        (said,) = data.aside
        assert said.startswith(f"{bad.kind} record {bad.probe} is damaged, ") and f"{name}: " in said


def test_neither_report_nor_notebooks_import_torch():
    names = "report.html, report.rendered, report.conclusions, report.figures_sweep, chain.session, chain.parts"
    imports = "; ".join(f"import capturebook.{name}" for name in names.split(", "))
    code = f"{imports}; import sys; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (in the extra dev)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["report.html", "notebooks/02_graph_capture.html"])
def test_opened_offline_it_asks_for_nothing_and_fits(gpu, browser, name, width):
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    address = (gpu / name).as_uri()
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.wait_for_timeout(300)
    elsewhere = [url for url in asked if url != address and not url.startswith("data:")]
    assert (elsewhere, wrong) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "wide tables scroll in their own box"
    boxes = ".stack, .pairs, .scroll:has(picture)" if width == 400 else ".stack, .pairs"
    cut = f"[...document.querySelectorAll('{boxes}')].filter(b => b.scrollWidth > b.clientWidth).map(b => b.innerText)"
    assert page.evaluate(cut) == [], "nothing is cut off"
    drawn = page.evaluate(
        "[...document.querySelectorAll('figure img')].map(i => i.naturalWidth > 0 || i.alt == 'seen')"
    )
    assert drawn and all(drawn) and page.title() != "owned"
    context.close()
