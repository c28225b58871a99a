"""The start text: environment, folder, command and secrets of a launch, as shell functions for the keeper's stdin."""

import shlex

from .channel import encoded
from .redact import is_word

_REDACT = """\
redact_line() {
    for cb_secret in %s; do
        cb_clean=
        while :; do
            case $cb_line in
                *"$cb_secret"*)
                    cb_clean="$cb_clean${cb_line%%%%"$cb_secret"*}[redacted]"
                    cb_line=${cb_line#*"$cb_secret"}
                    ;;
                *) break ;;
            esac
        done
        cb_line=$cb_clean$cb_line
    done
    for cb_secret in %s; do
        cb_clean=
        while :; do
            case $cb_line in
                *"$cb_secret"*)
                    cb_clean=$cb_clean${cb_line%%%%"$cb_secret"*}
                    cb_line=${cb_line#*"$cb_secret"}
                    cb_shown="[redacted]"
                    case $cb_clean in *[A-Za-z0-9]) cb_shown=$cb_secret ;; esac
                    case $cb_line in [A-Za-z0-9]*) cb_shown=$cb_secret ;; esac
                    cb_clean=$cb_clean$cb_shown
                    ;;
                *) break ;;
            esac
        done
        cb_line=$cb_clean$cb_line
    done
}
cb_redacts=yes
"""


def start_text(command: list[str], cwd: str, env: dict[str, str], hidden: list[str], nonce: str) -> bytes:
    """Shell text; every value is quoted. `hidden` are the values (no newline in them) that the log must not show.

    It ends with cb_whole=NONCE: a text that was cut short starts nothing.
    """
    exports = "".join(f"    export {name}={shlex.quote(value)}\n" for name, value in sorted(env.items()))
    text = (
        f"program_environment() {{\n{exports}    :\n}}\n"
        f"program_setup() {{\n    cd -- {shlex.quote(cwd)}\n}}\n"
        f"program_exec() {{\n    exec {shlex.join(command)}\n}}\n"
    )
    words = [value for value in hidden if is_word(value)]
    longer = [value for value in hidden if not is_word(value)]
    text += _REDACT % (shlex.join(longer), shlex.join(words)) if hidden else "cb_redacts=\n"
    return encoded(f"{text}cb_whole={nonce}\n")
