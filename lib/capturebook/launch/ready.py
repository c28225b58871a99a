"""Readiness by real work: a request that only a server that works can answer, asked beside the polls."""

import re
import threading
import urllib.error
import urllib.request

TRY = 20.0
"""Seconds that one request may take. It runs in a thread: one that hangs does not hide that the program died."""


def fetch(url: str, body: str | None, seconds: float) -> str:
    """The answer to a GET, or to a POST of JSON. No proxy is used. Raises OSError for what is no 2xx answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, None if body is None else body.encode())
    if body is not None:
        request.add_header("Content-Type", "application/json")
    with opener.open(request, timeout=seconds) as answer:
        return answer.read(1 << 20).decode("utf-8", "replace")


class Work:
    """Asks `url` again and again until an answer matches `expect`. `answer` is then the matching answer."""

    def __init__(self, url: str, body: str | None, expect: str):
        self.url, self.body, self.expect = url, body, re.compile(expect)
        self.answer = ""
        self.last = "nothing was asked yet"
        self.asked = 0
        self._thread: threading.Thread | None = None

    def step(self) -> bool:
        """Start a request if none is under way. True once the work was done."""
        if not self.answer and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self.asked += 1
            self._thread.start()
            self._thread.join(0.1)
        return bool(self.answer)

    def _ask(self) -> None:
        try:
            got = fetch(self.url, self.body, TRY)
        except urllib.error.HTTPError as exc:
            self.last = f"HTTP status {exc.code}"
        except (OSError, ValueError) as exc:
            self.last = f"{type(exc).__name__}: {exc}"
        else:
            match = self.expect.search(got)
            self.last = "the expected text" if match else f"an answer without the expected text: {got[:120]!r}"
            if match:
                self.answer = match.group(0)[:200] or "an empty match"
