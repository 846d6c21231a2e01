"""Text of stored results without paths, and the check that no name of this machine or its user is in it."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from merging.base import settings
from merging.base.errors import StoreError
from merging.models.model_references import checkpoint_labels, strip_folders
from merging.recipes.recipe import Recipe

# Names of accounts and machines that many computers have: they identify no person, and some are ordinary words.
COMMON_NAMES = {
    "admin", "administrator", "app", "appuser", "container", "debian", "docker", "ec2-user", "guest", "home", "jovyan",
    "laptop", "localhost", "nobody", "root", "runner", "server", "streamlit", "ubuntu", "user", "vscode",
}  # fmt: skip
MIN_NAME_LETTERS = 3  # letters of the shortest name that is searched: shorter ones occur in too many words
FOLDERS = re.compile(  # the folders in front of a file's name, in an absolute path of any system
    r"(?<![\w.~/\\:%}])(?:file://)?(?:~|[A-Za-z]:)?[\\/](?:[\w.+@~ -]*[\w.+@~-][\\/]+)+(?=[\w.+@-])"
)
HOME_FOLDER = re.compile(r"[\\/](?:home|Users)[\\/]+(?!\W)[\w.-]+[\\/]")
PACKED_NUMBERS = re.compile(r"[A-Za-z0-9+/=]{60,}")  # numbers as text, which could spell a name by chance


def without_paths(value: Any) -> Any:
    """Plain data in which every absolute path of a text is cut to its last part."""
    if isinstance(value, str):
        return FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {without_paths(key): without_paths(one) for key, one in value.items()}
    return [without_paths(one) for one in value] if isinstance(value, list) else value


def without_folders(recipe: Recipe) -> Recipe:
    """The recipe whose references to files are names without folders; bundled and Hub names stay."""
    pretrained, experts = checkpoint_labels(recipe.pretrained, dict(recipe.experts))
    files = recipe.data_files.map_paths(strip_folders)
    title = str(without_paths(recipe.title))
    return replace(recipe, pretrained=pretrained, experts=tuple(experts.items()), data_files=files, title=title)


class PrivateText:
    """The private folders and names of this machine, which no text of a pack may contain.

    ``allowed`` are names that the user allows as ordinary words; ``folders`` are further private folders.
    """

    def __init__(self, allowed: Collection[str] = (), folders: Iterable[Path] = ()) -> None:
        host, names, own = socket.gethostname(), list[str](), [Path.cwd(), settings.store_root(), *folders]
        with contextlib.suppress(RuntimeError):  # the account has no home
            names.append(Path.home().name)
            own.append(Path.home())
        with contextlib.suppress(OSError, KeyError, ImportError):  # the account has no name
            names.append(getpass.getuser())
        permitted = COMMON_NAMES | {name.casefold() for name in allowed}
        private = {name for name in (*names, host, host.partition(".")[0]) if len(name) >= MIN_NAME_LETTERS}
        self.names = sorted(name for name in private if name.casefold() not in permitted)
        self.folders = sorted({str(folder.absolute()) for folder in own if len(str(folder.absolute())) > 1})

    def check(self, text: str, subject: str) -> None:
        """Raise StoreError if a text of ``subject`` contains a private folder or name."""
        plain = PACKED_NUMBERS.sub("", text)
        lowered = plain.casefold()
        if HOME_FOLDER.search(plain) or any(folder.casefold() in lowered for folder in self.folders):
            raise StoreError(
                f"{subject} contains the path of a folder of this machine, which a pack must not contain. Change that "
                "text, or leave it out."
            )
        for name in self.names:
            if re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", lowered):
                raise StoreError(
                    f"{subject} contains “{name}”, the name of this machine or of its user, which a pack must not "
                    f"contain. Change that text, or allow the word with --allow {name}."
                )
