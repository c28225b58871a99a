"""Where the repository is. Relative paths mean its root in parameters, and the working directory on a command line."""

import os
from pathlib import Path


class NoCheckout(FileNotFoundError):
    """No repository is where one should be. One line."""


def repository() -> Path:
    """The folder that holds notebooks/, params/ and outputs/: $CAPTUREBOOK_ROOT, or the checkout this package is in.

    Raises NoCheckout when the package is installed apart from a checkout and the variable is unset.
    """
    named = os.environ.get("CAPTUREBOOK_ROOT")
    root = Path(named) if named else Path(__file__).resolve().parents[2]
    if not (root / "notebooks").is_dir() or not (root / "params").is_dir():
        hint = "CAPTUREBOOK_ROOT" if named else "this package's checkout (set CAPTUREBOOK_ROOT)"
        raise NoCheckout(f"{hint}: {str(root)!r} holds no notebooks/ and params/")
    return root.resolve()


def resolve(path: str | os.PathLike) -> Path:
    """An absolute path; a relative one is taken from the repository's root, `~` is the user's home.

    Raises ValueError, one line, for `~NAME` where there is no such user.
    """
    try:
        return repository() / Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{str(path)!r}: there is no user {Path(path).parts[0][1:]!r} here") from None


def given(path: str | os.PathLike) -> Path:
    """A path from a command line: relative to the working directory; what is not there, but in the repository, is that.

    Raises ValueError like `resolve`.
    """
    there = resolve(path)
    here = Path.cwd() / Path(path).expanduser()
    return there if os.path.exists(there) and not os.path.exists(here) else here


def from_here(path: str | os.PathLike) -> str:
    """A path that works on a command line here: relative where it lies below the working directory, else whole."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def shown(path: str | os.PathLike) -> str:
    """A path as people read it: relative to the repository where it lies inside, else as it is."""
    path = Path(path)
    root = repository()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
