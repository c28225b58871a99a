"""What a comparison calls equal: integers by Python's own, floating point by its dtype; what a check may return."""

import numpy
import pytest
import torch

from capturebook.probes.compare import compare, compared, truth
from capturebook.repro import parts
from capturebook.subjects.loader import SubjectError

INDICES = list(range(60000, 60128))
BIG = 1 << 60


def of(values, dtype):
    return torch.tensor(values, dtype=getattr(torch, dtype))


INTEGERS = {
    "indices that are equal": (of(INDICES, "int32"), of(INDICES, "int64"), True),
    "indices off by 7": (of([i + 7 for i in INDICES], "int32"), of(INDICES, "int32"), False),
    "one in 2^60": (of([BIG, BIG + 1], "int64"), of([BIG, BIG], "int64"), False),
    "a difference that int64 has not": (of([-(2**63)], "int64"), of([2**63 - 1], "int64"), False),
    "the same bits, of other numbers": (of([2**64 - 1], "uint64"), of([-1], "int64"), False),
    "bytes of a packed cache": (of([255, 3], "uint8"), of([255, 2], "uint8"), False),
    "a mask": (of([True, False], "bool"), of([True, False], "bool"), True),
    "a mask that is turned": (of([True, False], "bool"), of([False, True], "bool"), False),
    "a mask as numbers": (of([1, 0], "int8"), of([True, False], "bool"), True),
    "a reference in float64": (of([BIG, 3], "int64"), of([float(BIG), 3.0], "float64"), True),
    "off from a reference in float64": (of([60001, 3], "int64"), of([60000.0, 3.0], "float64"), False),
    "rounded or cut, either way": (of([60000, 60001, -2], "int32"), of([60000.7, 60000.7, -2.5], "float64"), True),
    "nothing": (of([], "int64"), of([], "int64"), True),
}


@pytest.mark.parametrize("what", INTEGERS)
def test_integers_are_equal_or_wrong(what):
    got, want, right = INTEGERS[what]
    (check,) = compare("call 1", {"out": got}, {"out": want}, None)
    assert (check.ok, check.tolerance) == (right, 0.0)
    assert (check.error is not None and check.error > 0) is not right
    assert compared(check) is (what != "nothing")


def test_the_error_of_integers_is_exact():
    def error(got, want):
        return compare("call 1", {"out": of(got, "int64")}, {"out": of(want, "int64")}, None)[0].error

    assert error([BIG + 5, 0], [BIG, 0]) == 5 / BIG
    assert error([-(2**63)], [2**63 - 1]) == pytest.approx(2.0)
    assert error([3], [0]) == 3.0


def test_a_tolerance_that_is_given_holds_for_integers_too():
    got, want = {"a": of([60007], "int32"), "b": of([8], "int32")}, {"a": of([60000], "int32"), "b": of([8], "int32")}
    assert [c.ok for c in compare("call 1", got, want, 1e-3)] == [True, True]
    assert [c.ok for c in compare("call 1", got, want, {"a": 1e-3, "b": None})] == [True, True]
    assert [c.ok for c in compare("call 1", got, want, [None, 1e-3])] == [False, True]


FLOATS = {
    "NaN where the reference is": ([1.0, float("nan")], [1.0, float("nan")], True),
    "NaN where it is not": ([float("nan"), 1.0], [1.0, 1.0], False),
    "a number where it is NaN": ([1.0, 1.0], [1.0, float("nan")], False),
    "the other infinity": ([1.0, float("inf")], [1.0, float("-inf")], False),
    "half a thousandth off": ([1.0005, 0.0], [1.0, 0.0], True),
    "two thousandths off": ([1.002, 0.0], [1.0, 0.0], False),
}


def exported() -> dict:
    """The names of an exported script's part that compares."""
    names = {"torch": torch}
    exec(compile(parts.COMPARE, "script", "exec"), names)
    return names


def test_an_exported_script_compares_alike():
    far = exported()["far"]
    cases = [case for case in INTEGERS.values()]
    cases += [(of(got, "float32"), of(want, "float64"), right) for got, want, right in FLOATS.values()]
    cases += [(of([1.01], "bfloat16"), of([1.0], "float32"), True), (torch.ones(2), torch.ones(3), False)]
    for got, want, right in cases:
        (check,) = compare("call 1", {"out": got}, {"out": want}, None)
        assert (check.ok, not far(got, want, None)) == (right, right), (got, want)
    assert not far(of([60007], "int32"), of([60000], "int32"), 1e-3)


@pytest.mark.parametrize("value", [True, False, numpy.True_, numpy.False_, torch.tensor(True), torch.tensor(False)])
def test_a_check_returns_a_truth_value(value):
    assert truth(value) is bool(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((False, "off"), "tuple"),
        ("wrong: no", "str"),
        (None, "NoneType"),
        (1, "int"),
        (0.25, "float"),
        (torch.tensor([True, True]), r"Tensor of torch\.bool, shape \[2\]"),
        (torch.tensor(0.5), r"Tensor of torch\.float32, shape \[\]"),
    ],
)
def test_what_is_no_truth_value_is_refused(value, says):
    with pytest.raises(SubjectError, match=f"^check: returned {says}; allowed: a bool$"):
        truth(value)
