"""Secrets, and their removal from all that is shown, recorded or kept."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

from .. import paths
from . import credentials
from .channel import encoded

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)

SHOWN = "[redacted]"
SHORTEST = 6
"""Characters. A shorter value of a variable like MAX_TOKENS is hidden in the environment only: elsewhere it would hide
numbers. One of a name like API_KEY is hidden everywhere, if it has two and is no flag, and one of a variable that
`secret` names always; one of letters and digits alone where it stands as a word of its own."""

SHORT = 2
FLAGS = frozenset(("true", "false", "yes", "no", "on", "off", "none", "null"))


def is_word(value: str) -> bool:
    """Whether a secret is so short that only whole words of text are it: "a" would be in every line."""
    return len(value) < SHORTEST and value.isascii() and value.isalnum()


def _forms(secret: str) -> set[str]:
    """A secret as it is, and as a program prints it in JSON or in a URL."""
    if is_word(secret):
        return {secret}
    raw = encoded(secret)
    quoted = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {secret, *quoted, quote(raw), quote(raw, ""), quote_plus(raw)}


def _key(name: str, shown: Callable[[str], str]) -> str:
    """A key of what is kept. A field's or a variable's name is read again by it, even if a secret is that word."""
    return name if name.isidentifier() else shown(name)


class Redactor:
    """Replaces secret values in text. `add` takes environments: what they hold under a telling name is secret.

    `nonce` is the launch's: a program that is given it as its key shows it, since stages go by it.
    """

    def __init__(self, secret_names: Iterable[str] = (), nonce: str = ""):
        self._names = set(secret_names)
        self.nonce = nonce
        self.values: list[str] = []
        self.places: dict[str, str] = {}

    def is_secret(self, name: str) -> bool:
        return name in self._names or bool(SECRET_NAME.search(name))

    def add(self, env: Mapping[str, str]) -> None:
        """Hide these variables' values from now on, line by line where a value has several lines, and what is secret
        within the others."""
        for name, value in env.items():
            self._named(name, value)
            self.add_text(value)

    def add_words(self, command: Sequence[str]) -> None:
        """Hide the values of options that have a telling name, as --api-key VALUE or --api-key=VALUE, those of
        assignments (HF_TOKEN=VALUE) that have one, and what is secret within the words."""
        for word, following in zip(command, [*command[1:], ""]):
            name, equals, value = word.partition("=")
            if name.startswith("-") and credentials.tells(name):
                self._hide([value if equals else following], SHORT)
            elif name.isidentifier():
                self._named(name, value)
            self.add_text(word)

    def add_text(self, text: str) -> None:
        """Hide what a text (a shell command, JSON, a URL) gives under a telling name."""
        self._hide(credentials.found(text), SHORT)
        for name, value in credentials.assigned(text):
            self._named(name, value)

    def _named(self, name: str, value: str) -> None:
        if name in self._names:
            self._hide([value], 1)
        elif self.is_secret(name):
            self._hide([value], SHORT if credentials.tells(name) else SHORTEST)

    def _hide(self, values: list[str], shortest: int) -> None:
        lines = {line for value in values for line in value.split("\n") if len(line) >= SHORTEST or is_word(line)}
        lines = {line for line in {*lines, *values} if len(line) >= shortest and line.strip()}
        if shortest > 1:
            lines = {line for line in lines if line.lower() not in FLAGS}
        # Longest first: a secret that contains another must not leave its rest behind.
        forms = {form for line in lines for form in _forms(line)} - {self.nonce}
        self.values = sorted({*self.values, *forms}, key=lambda value: (-len(value), value))

    def text(self, text: str) -> str:
        for value in self.values:
            if is_word(value):
                text = re.sub(rf"(?<![A-Za-z0-9]){value}(?![A-Za-z0-9])", SHOWN, text)
            else:
                text = text.replace(value, SHOWN)
        return text

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """An environment as it may be recorded."""
        return {name: SHOWN if self.is_secret(name) else self.text(value) for name, value in env.items()}

    def clean(self, value):
        """The same for anything that JSON can hold."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {_key(str(name), self.text): self.clean(item) for name, item in value.items()}
        return [self.clean(item) for item in value] if isinstance(value, list | tuple) else value

    def record(self, value):
        """`clean`, and without folders that name a user or this machine: `places` is {path: what it is called}."""
        if isinstance(value, str):
            value = self.text(value)
            for path, name in sorted(self.places.items(), key=lambda pair: -len(pair[0])):
                value = re.sub(rf"(?<![\w.-]){re.escape(path)}(?![\w.-])", name, value)
            return value
        if isinstance(value, dict):
            return {_key(str(name), self.record): self.record(item) for name, item in value.items()}
        return [self.record(item) for item in value] if isinstance(value, list | tuple) else value

    def at(self, home: str) -> None:
        """The host's home folder, ours and the repository are not named in records."""
        for path, name in ((home, "~"), (str(Path.home()), "~"), (str(paths.repository()), "<repository>")):
            if len(path) > 1:
                self.places[path] = name
