"""README.md and docs/: its own kernel is a subject as it stands, and what it names is there."""

import re

from capturebook.attribution.recipes import RECIPES
from capturebook.launch.classes import CLASSES
from capturebook.params import preset_names
from capturebook.paths import repository

REPO = repository()

TEXT = (REPO / "README.md").read_text(encoding="utf-8")


def test_its_own_kernel_has_fifteen_lines_and_builds(tmp_path, monkeypatch):
    from capturebook.subjects.loader import load
    from capturebook.subjects.step import Step

    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 15
    (tmp_path / "mine_of_the_readme.py").write_text(block)
    step = load(f"{tmp_path}/mine_of_the_readme.py:build")(batch=2)
    assert isinstance(step, Step) and isinstance(step.twin, Step)
    import torch

    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    first, again, other = step.make_inputs(0)[0], step.make_inputs(0)[0], step.make_inputs(1)[0]
    assert first.shape == (2, 4096) and first.equal(again) and not first.equal(other)
    assert step.twin.fn(first).equal(step.reference(first))


def test_what_it_names_is_there():
    for target in re.findall(r"\[[^\]]+\]\(([^)#:\s]+)\)", TEXT):
        if target != "docs/report.png":
            assert (REPO / target).exists(), target
    for preset in preset_names():
        assert f"`{preset}`" in TEXT, preset
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z]+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_pages_beside_it_name_what_is_there_and_every_class_of_a_launch():
    for page in sorted((REPO / "docs").glob("*.md")):
        for target in re.findall(r"\[[^\]]+\]\(([^)#:\s]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    hosts = (REPO / "docs" / "hosts.md").read_text(encoding="utf-8")
    for name, (what, todo) in CLASSES.items():
        assert f"| {name} | {what} | {todo} |" in hosts


def test_every_class_belongs_to_an_owner_it_lists():
    """K1 to K6, B1 to B5, B8, B9, B6, B7, as the table of owners groups them."""
    told = {f"K{i}" for i in range(1, 7)} | {f"B{i}" for i in range(1, 10)}
    assert told == set(RECIPES)
