"""Secrets, and their removal from all that is shown, recorded or kept."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from .. import paths

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
SECRET_OPTION = re.compile(r"(token|key|secret|password)$")
"""Ends of words of an option's name (--api-key, --authToken): not --max-tokens, nor --tokenizer."""

ASSIGNED = re.compile(r"""(?:^|(?<=[\s;&|("'=]))([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s;&|)"'$]+)""")
"""NAME=value as a word of shell text."""

HEADER = re.compile(
    r"([\w-]*(?:authorization|token|key|secret|password)):\s*(?:(?:bearer|basic|token)\s+)?([^\s\"']+)", re.I
)
"""A request's header that proves who asks."""

SHOWN = "[redacted]"
SHORTEST = 6
"""Characters. A shorter value (MAX_TOKENS=512) is hidden in the environment only: elsewhere it would hide numbers.
One of a variable that `secret` names is hidden everywhere, where it stands as a word of its own."""


def is_word(value: str) -> bool:
    """Whether a secret is so short that only whole words of text are it: "a" would be in every line."""
    return len(value) < SHORTEST and value.isascii() and value.isalnum()


def _key(name: str, shown: Callable[[str], str]) -> str:
    """A key of what is kept. A field's or a variable's name is read again by it, even if a secret is that word."""
    return name if name.isidentifier() else shown(name)


class Redactor:
    """Replaces secret values in text. `add` takes environments: what they hold under a telling name is secret."""

    def __init__(self, secret_names: Iterable[str] = ()):
        self._names = set(secret_names)
        self.values: list[str] = []
        self.places: dict[str, str] = {}

    def is_secret(self, name: str) -> bool:
        return name in self._names or bool(SECRET_NAME.search(name))

    def add(self, env: Mapping[str, str]) -> None:
        """Hide these variables' values from now on, line by line where a value has several lines."""
        self._hide([value for name, value in env.items() if self.is_secret(name)])
        self._hide([value for name, value in env.items() if name in self._names], shortest=1)

    def add_words(self, command: Sequence[str]) -> None:
        """Hide the values of options that have a telling name, as --api-key VALUE or --api-key=VALUE, and those of
        assignments (HF_TOKEN=VALUE, in shell text too) and headers (Authorization: Bearer VALUE) that have one."""
        for word, following in zip(command, [*command[1:], ""]):
            name, equals, value = word.partition("=")
            spelt = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
            if name.startswith("-") and any(map(SECRET_OPTION.search, re.split(r"[-_.]+", spelt))):
                self._hide([value if equals else following])
            elif name.isidentifier() and SECRET_NAME.search(name):
                self._hide([value])
            assigned = [(name, value.strip("\"'")) for name, value in ASSIGNED.findall(word)]
            self._hide([value for name, value in assigned if SECRET_NAME.search(name)])
            self._hide([value for _, value in HEADER.findall(word)])

    def _hide(self, values: list[str], shortest: int = SHORTEST) -> None:
        lines = {line for value in values for line in value.split("\n") if len(line) >= SHORTEST or is_word(line)}
        lines = {line for line in {*lines, *values} if len(line) >= shortest}
        # Longest first: a secret that contains another must not leave its rest behind.
        self.values = sorted({*self.values, *lines}, key=lambda value: (-len(value), value))

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
