"""Readiness by real work: a request that only a server that works can answer, asked beside the polls."""

import http.client
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

TRY = 20.0
"""Seconds that one request may take. It runs in a thread: one that hangs does not hide that the program died."""


class NotYet(RuntimeError):
    """An answer came, and it is not yet the work that was asked for. The text says what it was."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: what another place answers proves nothing of the one that was asked."""

    def redirect_request(self, request, answer, code, message, headers, to):
        raise NotYet(f"HTTP status {code}, a redirect to {to!r:.120}, which is not followed: ask what answers itself")


def fetch(url: str, body: str | None, seconds: float, key: str = "") -> str:
    """The answer to a GET, or to a POST of JSON, with `key` as the bearer's token unless it is empty. No proxy is used.
    Raises OSError for what is no 2xx answer, and NotYet for a redirect."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())
    request = urllib.request.Request(url, None if body is None else body.encode())
    if body is not None:
        request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with opener.open(request, timeout=seconds) as answer:
        return answer.read(1 << 20).decode("utf-8", "replace")


def expecting(url: Callable[[], str], body: str | None, expect: str, shown: Callable[[str], str]) -> Callable[[], str]:
    """Work that asks `url()` and finds `expect` in the answer, as it is or as it is `shown`; it returns the match."""

    def ask() -> str:
        got = fetch(url(), body, TRY)
        match = re.search(expect, got) or re.search(expect, shown(got))
        if match is None:
            raise NotYet(f"an answer without the expected text: {got[:120]!r}")
        return match.group(0)[:200]

    return ask


class Work:
    """Tries `action` again and again, one at a time, until it returns. `last` says what the last try gave."""

    def __init__(self, action: Callable[[], str]):
        self.action = action
        self.answer: str | None = None
        self.last = "nothing yet"
        self.asked = 0
        self._thread: threading.Thread | None = None

    def step(self) -> bool:
        """Start a try if none is under way. True once one succeeded."""
        if self.answer is None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._try, daemon=True)
            self.asked += 1
            self._thread.start()
            self._thread.join(0.1)
        return self.answer is not None

    def _try(self) -> None:
        try:
            self.answer = self.action()
        except NotYet as exc:
            self.last = str(exc)
        except urllib.error.HTTPError as exc:
            self.last = f"HTTP status {exc.code}"
        except (OSError, ValueError, http.client.HTTPException) as exc:
            self.last = f"{type(exc).__name__}: {exc}"
