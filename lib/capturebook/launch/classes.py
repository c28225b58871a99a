"""C1 to C18: the ways in which a diagnostic silently does not run, and what to do about each."""

CLASSES: dict[str, tuple[str, str]] = {
    "C1": (
        "a child read the script from standard input and ate its rest",
        "give the code as `script`: it is run from a file, with /dev/null as its standard input",
    ),
    "C2": (
        "the script changed on its way (expanded by a shell, cut or altered)",
        "give it as `script` or under `files`: bytes are delivered as they are and compared by sha256",
    ),
    "C3": (
        "the script does not parse as it was meant (a here-document without its end, CR line ends)",
        "mend the line that is named; a here-document's terminator stands alone, unindented, at the line's start",
    ),
    "C4": (
        "a background child held the connection or outlived its parent",
        "let the script wait for what it starts; what outlives it is ended and named, found by session, environment or "
        "output, and with `systemd: true` by its scope: without one, what has left the other three is not",
    ),
    "C5": (
        "the program never started",
        "check that the host can be reached, and that the command exists there under the PATH of `env`",
    ),
    "C6": ("a folder or file to write into is missing, full or read-only", "make it, or free it, on that host"),
    "C7": (
        "an exit status was lost in a pipe or in the background",
        "use `set -o pipefail`, `wait PID` for what runs in the background, and keep `result` as the proof",
    ),
    "C8": (
        "an old result was there and would have been read as this one",
        "write it anew: what was there does not count",
    ),
    "C9": ("another process owns the port and would answer in our place", "stop it, or use `port: auto`"),
    "C10": (
        "the server said it was ready but did no work",
        "see its log; raise `deadline` if it was still loading",
    ),
    "C11": (
        "what was polled was empty, and empty is no answer",
        "see why it is empty: nothing was concluded from it",
    ),
    "C12": ("a pattern matched another process", "stop by launch id: it goes by recorded process and start time"),
    "C13": ("it ran past its deadline", "raise `deadline`, or find what it waits for"),
    "C14": (
        "a command failed and the shell script went on (`set -e` is off in conditions and in `local x=$(...)`)",
        "check the step where it stands; keep `result` as the proof",
    ),
    "C15": ("a Triton kernel cannot be defined in -c or standard input code", "put the code in a .py file: `script`"),
    "C16": (
        "a process was spawned from standard input code, or forked after CUDA had started",
        "use a .py file as `script`, and start processes before CUDA is used, or by spawn",
    ),
    "C17": ("a notebook's kernel died or a cell did not run", "run it by `capturebook run`, which reads results only"),
    "C18": (
        "a setting was asked for and is not in force",
        "set it where the program itself reads it",
    ),
}


def title(name: str) -> str:
    return CLASSES[name][0]


def todo(name: str) -> str:
    """What to do about a class, one line."""
    return CLASSES[name][1]
