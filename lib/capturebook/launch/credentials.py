"""Credentials in text, by the names that they are given under: in shell text, headers, JSON and URLs."""

import re
from urllib.parse import unquote

_TELLING = re.compile(r"(token|key|secret|password|authorization)$")
"""Ends of words of a name (api-key, authToken, HF_TOKEN): not max_tokens, nor tokenizer."""

_ASSIGNED = re.compile(r"""(?:^|(?<=[\s;|("'=]))([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s;&|)"'$]+)""")
_OPTION = re.compile(r"""(?:^|(?<=[\s"'(]))(--?[A-Za-z][\w.-]*)(?:=|\s+)("[^"]*"|'[^']*'|[^\s;&|)"'$-][^\s;&|)"'$]*)""")
_HEADER = re.compile(r"(?:^|(?<=[\s\"']))([\w-]+):\s*(?:(?:bearer|basic|token)\s+)?([^\s\"'\\]+)", re.IGNORECASE)
_JSON = re.compile(r"""(\\*["'])([\w.-]+)\1\s*:\s*(?:\1(?:(?:[Bb]earer|[Bb]asic|[Tt]oken) )?(.+?)(?<!\\)\1|(\d+))""")
_QUERY = re.compile(r"[?&;#]([\w.-]+)=([^&;#\s\"'\\]+)")
_USER = re.compile(r"https?://([^/\s:@\"']+)@|[a-z]://[^/\s:@\"']*:([^/\s@\"']+)@", re.IGNORECASE)


def tells(name: str) -> bool:
    """Whether a name says that its value is a credential: one of its words ends so."""
    spelt = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    return any(map(_TELLING.search, re.split(r"[-_.]+", spelt)))


def assigned(text: str) -> list[tuple[str, str]]:
    """NAME=value, as words of shell text."""
    return [(name, value.strip("\"'")) for name, value in _ASSIGNED.findall(text)]


def found(text: str) -> list[str]:
    """The values of options, headers, JSON members and URL queries that have a telling name, and what proves the user
    in a URL; each also without its %-escapes."""
    pairs = [(name, value.strip("\"'")) for name, value in _OPTION.findall(text)]
    pairs += _HEADER.findall(text)
    pairs += [(name, value or number) for _, name, value, number in _JSON.findall(text)]
    pairs += _QUERY.findall(text)
    values = [value for name, value in pairs if tells(name)]
    values += [user or password for user, password in _USER.findall(text)]
    return [*values, *map(unquote, values)]
