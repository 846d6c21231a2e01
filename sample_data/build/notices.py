"""The NOTICE file: what each source is, who holds it and under which terms, read from the packages themselves."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sample_data.build import fonts
from sample_data.build.export import PACKAGES

HEAD = """Sources of the images in data/ and of the images that the models in models/ were trained on
=======================================================================================

The repository holds images rendered from fonts, not the fonts themselves. Each license below is the one that the
copyright file of the installed Debian package states for the files used (machine-readable format, last match wins).

"""
TAIL = """UCI digits
  source:    Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning
             Repository, https://doi.org/10.24432/C50P49; the copy of its test half in scikit-learn's load_digits
  license:   CC-BY-4.0
  stated in: item 4 of the UCI repository's own policy, https://archive-beta.ics.uci.edu/donation (read on 2026-11-22 in
             an archived copy). scikit-learn's description of its copy names source and creator but no license
  changes:   enlarged from 8 x 8 to 32 x 32, recolored, warped, laid on a background
  used for:  the out-of-domain set uci_digits

Traffic signs, land use, textures, shapes, gratings
  source:    drawn by build/drawings.py, build/textures.py and build/land.py of this folder
  license:   the repository's own
  lettering: on the signs rendered in Open Sans (fonts-open-sans above)

Texts of the licenses
  {texts}
"""
# address of a license's text -> its names in the packages' copyright files
TEXTS = {
    "https://openfontlicense.org/open-font-license-official-text/": (
        "OFL-1.1", "SIL-1.1", "SIL-OFL-1.1", "SIL_Open_Font_License_1.1", "SIL Open Font License, Version 1.1",
        "SIL Open Font License",
    ),
    "https://spdx.org/licenses/OFL-1.0.html": ("OFL-1.0", "SIL Open Font License, Version 1.0"),
    "https://www.apache.org/licenses/LICENSE-2.0": ("Apache-2.0", "Apache-2"),
    "https://creativecommons.org/licenses/by/4.0/legalcode": ("CC-BY-4.0",),
    "https://creativecommons.org/licenses/by-sa/3.0/legalcode": ("CC-BY-SA-3.0",),
    "https://spdx.org/licenses/MIT.html": ("Expat",),
}  # fmt: skip
NO_TEXT = ("public-domain", "the repository's own")
TEXT_MUST_TRAVEL = ("Expat",)  # licenses whose text has to accompany the images


def _stanzas(package: str) -> list[dict[str, str]]:
    """The Files stanzas of a package's copyright file, in order."""
    text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
    stanzas = []
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1] in (" ", "\t"):
                fields[name] = fields.get(name, "") + "\n" + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if "Files" in fields and "License" in fields and fields["Copyright"]:
            stanzas.append(fields)
    return stanzas


def _used_files(package: str) -> list[str]:
    if package.startswith("fonts-"):
        short = package.removeprefix("fonts-")
        used = {path for split in fonts.SPLITS for path in fonts.general_files(split)} | set(fonts.script_files())
        return [path for path in fonts.package_files(short) if path in used or short == "noto-color-emoji"]
    listing = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listing if path.endswith((".png", ".gz")) and "/doc/" not in path]


def _matches(path: str, pattern: str) -> bool:
    """Whether a stanza's pattern, written for the source tree, covers an installed file."""
    name, last = Path(path).name, pattern.rsplit("/", 1)[-1]
    return pattern == "*" or (not pattern.startswith("debian/") and fnmatch.fnmatch(name, last))


def terms(package: str) -> list[tuple[str, str]]:
    """License name and holders of the files used from a package, without repeats."""
    stanzas, found = _stanzas(package), dict[tuple[str, str], None]()
    if not any("debian/" not in stanza["Files"] for stanza in stanzas):
        return [_prose_terms(package)]
    for path in _used_files(package):
        best = [s for s in stanzas if any(_matches(path, pattern) for pattern in s["Files"].split())]
        if not best:
            raise ValueError(f"{package}: the copyright file has no entry for {path}")
        holders = " ".join(best[-1].get("Copyright", "not stated").split())
        found[best[-1]["License"].splitlines()[0], holders] = None
    return list(found)


def _prose_terms(package: str) -> tuple[str, str]:
    """The same from a copyright file in prose: older packages of fonts under the SIL license."""
    text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
    license_name = re.search(r"(SIL Open Font License,\s+Version 1\.[01])", text)
    holder = re.search(r"Copyright \([cC]\) (\d{4}[^\n]*)", text)
    if license_name is None or holder is None:
        raise ValueError(f"{package}: no license found in its copyright file")
    return " ".join(license_name[1].split()), holder[1].strip()


def _license_text(package: str, license_name: str) -> str:
    """The license's own words, indented."""
    text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
    body = text.split(f"\nLicense: {license_name}\n ", 1)[1].split("\n\n")[0]
    return "".join(f"    {line.strip().removeprefix('.')}\n" for line in body.splitlines())


def list_without_text(license_names: Iterable[str]) -> list[str]:
    """The names, or alternatives joined by "or", for which no license text is known."""
    known = {*NO_TEXT, *(name for names in TEXTS.values() for name in names)}
    return [name for names in license_names for name in names.split(" or ") if name not in known]


def license_texts() -> str:
    """One line per license: its names above, and where its text is."""
    return "\n  ".join(f"{'; '.join(names)}\n    {address}" for address, names in TEXTS.items())


def write(out: Path, versions: dict[str, str]) -> None:
    """NOTICE: one entry per package, then the sources that are no package."""
    lines = [HEAD]
    for package in sorted(set(PACKAGES)):
        lines.append(f"{package} {versions[package]}\n")
        for license_name, holders in terms(package):
            if list_without_text([license_name]):
                raise ValueError(f"{package}: add the address of the text of {license_name!r} to TEXTS")
            lines.append(f"  license:   {license_name}\n  copyright: {holders}\n")
            if license_name in TEXT_MUST_TRAVEL:
                lines.append(_license_text(package, license_name))
        lines.append("\n")
    (out / "NOTICE").write_text("".join(lines) + TAIL.format(texts=license_texts()), encoding="utf-8")
