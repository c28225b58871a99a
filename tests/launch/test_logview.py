"""A log that arrives in parts: each line is looked at once, whole, and however much comes at a time."""

import re

import pytest

from capturebook.launch.adapters import ADAPTERS
from capturebook.launch.literal import words_of
from capturebook.launch.logview import LogView
from capturebook.launch.redact import Redactor

LOG = (
    b"capturebook launch abc\n"
    + b"".join(b"line %d of a worker\n" % number for number in range(300))
    + b"the hidden-one said\nCUDA error: out of memory\nbar 1%\rbar 2%\n\nRESULT=42\nlast, no newline"
)


@pytest.mark.parametrize("part", [1, 7, 100, len(LOG)])
def test_parts_of_any_size_say_the_same(tmp_path, part):
    redactor = Redactor()
    redactor.add({"A_TOKEN": "hidden-one"})
    wanted = {"a": "^line 7 of", "b": "^bar 2%$", "c": r"^RESULT=\d+$", "d": "newline$", "e": r"^$", "f": "never"}
    log = LogView(tmp_path / "log", redactor, wanted)
    for at in range(0, len(LOG), part):
        log.feed(LOG[at : at + part], 1.0)
    log.finish(2.0)
    log.close()
    assert log.found == {"a": "line 7 of a worker", "b": "bar 2%", "c": "RESULT=42", "d": "last, no newline", "e": ""}
    assert log.at["d"] == 2.0 and log.header == "capturebook launch abc"
    assert log.lines == 306 and [said.code for said in log.said] == [2]
    assert (tmp_path / "log").read_bytes() == LOG.replace(b"hidden-one", b"[redacted]") + b"\n"
    assert log.last[-3:] == ["", "RESULT=42", "last, no newline"] and log.last[-5] == "CUDA error: out of memory"


@pytest.mark.parametrize(
    ("pattern", "words", "lines"),
    [
        ("^RESULT=42$", ("RESULT=42",), ["RESULT=42"]),
        ("foo|barx", ("foo", "barx"), ["a foo", "a barx"]),
        ("a|foo", (), ["a"]),
        ("(?i)foo", (), ["FOO"]),
        (r"ab+cde?fgh", ("fgh",), ["abbcdfgh", "abcdefgh"]),
        (r"abcd{0,2}e", ("abc",), ["abce", "abcdde"]),
        ("abc{foo|bar}x", ("abc{foo", "bar}x"), ["abc{foo", "bar}x"]),
        (r"[]abc]xyz[^]abc]", ("xyz",), ["]xyz-"]),
        (r"(foo|bar|(baz))qux", ("qux",), ["barqux"]),
        (r"(foobar)?qux", ("qux",), ["qux"]),
        (r"\x41bcd", (), ["Abcd"]),
        (r"1\.5\-rc\d", ("1.5-rc",), ["1.5-rc3"]),
        (r"\(pid=\d+\) died", (") died",), ["(pid=3) died"]),
        ("(?<!x)foobar", (), ["foobar"]),
    ],
)
def test_each_match_holds_one_of_the_words(pattern, words, lines):
    assert words_of(pattern) == words
    for line in lines:
        assert re.search(pattern, line) and (not words or any(word in line for word in words))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_patterns_of_our_own_save_the_look_at_each_line(adapter):
    assert all(map(words_of, [*adapter.failed, *adapter.phases.values()]))
