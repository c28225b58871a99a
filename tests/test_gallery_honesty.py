"""The recorded H200 gallery run, altered: blanked texts, records taken away, contradictions. Never another owner."""

import random

import pytest

from capturebook.attribution import judge
from capturebook.chain.folder import RunFolder
from capturebook.gallery.cases import CASES
from capturebook.gallery.evaluate import entries, with_repaired
from capturebook.records import Link, latest

OPEN = ("undetermined", "not_run")
KNOWN_BY_TEXT = {"K2", "B3", "B4"}
"""Classes of which some cases carry neither code nor witness: torch's refusal to draw random numbers in a capture (K2),
an overwritten tree's output (B3), and the status of a CUDA library (B4)."""


@pytest.fixture(scope="module")
def judged(repo):
    """[(case, its info, its records, its verdict)] of every case that the run has decided."""
    folder = repo / "outputs" / "h200-gallery"
    if not folder.is_dir():
        pytest.skip("outputs/h200-gallery is not in this checkout")
    run = RunFolder.open(str(folder))
    known = latest([r for r in run.records()[0] if r.kind == "step"])
    asked, _ = entries(run.info["plan"], {c.id: c for c in with_repaired(list(CASES.values()))}, run.nonce)
    return [(a.case, a.info, a.records(known), a.verdict(known)) for a in asked]


def altered(judged, alter):
    """[(case id, verdict as it was, verdict of the altered records)] for each way to alter a case's records."""
    found = []
    for case, info, records, verdict in judged:
        found += [(case.id, verdict, judge(info, None, changed)) for changed in alter(records, verdict)]
    assert len(found) >= 60
    return found


def test_texts_are_needed_for_three_classes_alone_and_then_decide_no_other_owner(judged):
    def blanked(records, verdict):
        yield [r.model_copy(update={"chain": [k.model_copy(update={"text": ""}) for k in r.chain]}) for r in records]

    told = [(name, was, now) for name, was, now in altered(judged, blanked) if now.class_ != was.class_]
    assert {was.class_ for _, was, _ in told} <= KNOWN_BY_TEXT
    assert [name for name, was, now in told if now.owner not in (*OPEN, was.owner)] == []
    assert all(now.class_ is None for _, _, now in told)


def test_every_deciding_record_is_needed(judged):
    def less(records, verdict):
        for probe in verdict.records:
            yield [r for r in records if r.probe != probe]
            gone = {"status": "not_run", "reason": "planted", "chain": [], "checks": [], "events": [], "counts": {}}
            yield [r.model_copy(update=gone) if r.probe == probe else r for r in records]

    assert [(name, now.sentence) for name, _, now in altered(judged, less) if now.owner not in OPEN] == []


def test_any_record_less_never_gives_another_owner(judged):
    def less(records, verdict):
        for index in range(len(records)):
            yield records[:index] + records[index + 1 :]

    assert [name for name, was, now in altered(judged, less) if now.owner not in (*OPEN, was.owner)] == []


def test_without_a_control_nothing_ran(judged):
    def less(records, verdict):
        for control in ("trivial", "planted_item", "baked_scalar"):
            yield [r for r in records if r.subject.target != f"capturebook.subjects.controls:{control}"]

    assert {(now.owner, now.root) for _, _, now in altered(judged, less)} == {("not_run", None)}


def test_a_repeat_that_disagrees_leaves_it_open(judged):
    odd = Link(type="AcceleratorError", module="torch", code=999, name="cudaErrorUnknown", text="planted")

    def contradicted(records, verdict):
        asked = next(r for r in records if r.role == "unwatched" and r.arm.model_dump() == verdict.question["arm"])
        other = {"probe": "0" * 12, "role": "repeat", "watched": True, "checks": []}
        failed = {"status": "fail", "stage": "capture", "chain": [odd], "samples": {}}
        end = failed if asked.status == "pass" else {"status": "pass", "chain": []}
        yield [*records, asked.model_copy(update={**other, **end})]

    # What another thread breaks now and then passes now and then: that is the finding, and no contradiction.
    stays = {was.class_ for _, was, now in altered(judged, contradicted) if now.owner not in OPEN}
    assert stays <= {"B6"}


def test_order_does_not_matter(judged):
    def shuffled(records, verdict):
        mixed = records.copy()
        random.Random(0).shuffle(mixed)
        yield mixed

    assert [name for name, was, now in altered(judged, shuffled) if now != was] == []
