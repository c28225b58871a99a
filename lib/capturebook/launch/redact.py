"""Secrets, and their removal from all that is shown, recorded or kept."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .. import paths

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
SECRET_OPTION = {"token", "key", "apikey", "secret", "password"}
"""Whole words of an option's name (--api-key, --hf-token): not --max-tokens, nor --tokenizer."""

SHOWN = "[redacted]"
SHORTEST = 6
"""Characters. A shorter value (MAX_TOKENS=512) is hidden in the environment only: elsewhere it would hide numbers."""


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

    def add_words(self, command: Sequence[str]) -> None:
        """Hide the values of options that have a telling name, as --api-key VALUE or --api-key=VALUE."""
        for word, following in zip(command, [*command[1:], ""]):
            name, equals, value = word.partition("=")
            if name.startswith("-") and SECRET_OPTION & set(re.split(r"[-_]+", name.lower())):
                self._hide([value if equals else following])

    def _hide(self, values: list[str]) -> None:
        lines = {line for value in values for line in (value, *value.split("\n")) if len(line) >= SHORTEST}
        # Longest first: a secret that contains another must not leave its rest behind.
        self.values = sorted({*self.values, *lines}, key=lambda value: (-len(value), value))

    def text(self, text: str) -> str:
        for value in self.values:
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
            return {self.text(str(name)): self.clean(item) for name, item in value.items()}
        return [self.clean(item) for item in value] if isinstance(value, list | tuple) else value

    def record(self, value):
        """`clean`, and without folders that name a user or this machine: `places` is {path: what it is called}."""
        if isinstance(value, str):
            value = self.text(value)
            for path, name in sorted(self.places.items(), key=lambda pair: -len(pair[0])):
                value = re.sub(rf"(?<![\w.-]){re.escape(path)}(?![\w.-])", name, value)
            return value
        if isinstance(value, dict):
            return {self.record(str(name)): self.record(item) for name, item in value.items()}
        return [self.record(item) for item in value] if isinstance(value, list | tuple) else value

    def at(self, home: str) -> None:
        """The host's home folder, ours and the repository are not named in records."""
        for path, name in ((home, "~"), (str(Path.home()), "~"), (str(paths.repository()), "<repository>")):
            if len(path) > 1:
                self.places[path] = name
