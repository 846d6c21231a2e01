"""The data sets of the benchmark: their classes, what a class looks like in words, and where the images come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from sample_data.build.drawings import SHAPES, SIGNS
from sample_data.build.land import LAND
from sample_data.build.textures import TEXTURES

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FASHION = {
    "T-shirt": 0,
    "trousers": 1,
    "pullover": 2,
    "dress": 3,
    "sandal": 5,
    "sneaker": 7,
    "bag": 8,
    "ankle boot": 9,
}  # coat (4) and shirt (6) are left out: at 32 pixels they collide with the pullover and the T-shirt
LETTERS = "AEHLMOSTXZ"
FLAGS = {
    "Germany": "de",
    "United Kingdom": "gb",
    "Canada": "ca",
    "Denmark": "dk",
    "Ireland": "ie",
    "Greece": "gr",
    "South Korea": "kr",
    "Australia": "au",
    "Romania": "ro",
    "Nigeria": "ng",
    "Japan": "jp",
    "Brazil": "br",
    "France": "fr",
    "Italy": "it",
    "Sweden": "se",
    "Switzerland": "ch",
    "Turkey": "tr",
    "United States": "us",
    "South Africa": "za",
    "India": "in",
    "China": "cn",
    "Argentina": "ar",
    "Poland": "pl",
    "Ukraine": "ua",
    "Finland": "fi",
    "Norway": "no",
    "Spain": "es",
    "Portugal": "pt",
    "Jamaica": "jm",
    "Kenya": "ke",
    "Israel": "il",
    "Vietnam": "vn",
    "Thailand": "th",
    "Austria": "at",
    "Czechia": "cz",
    "Belgium": "be",
}
KANA = {
    "a": "あ",
    "ka": "か",
    "sa": "さ",
    "ta": "た",
    "na": "な",
    "ha": "は",
    "ma": "ま",
    "ya": "や",
    "ra": "ら",
    "wa": "わ",
}
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "phi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
}
CYRILLIC = {
    "be": "Б",
    "de": "Д",
    "zhe": "Ж",
    "i": "И",
    "el": "Л",
    "ef": "Ф",
    "tse": "Ц",
    "e": "Э",
    "yu": "Ю",
    "ya": "Я",
}
SYMBOLS = {
    "ampersand": "&",
    "percent sign": "%",
    "at sign": "@",
    "question mark": "?",
    "exclamation mark": "!",
    "number sign": "#",
    "dollar sign": "$",
    "plus sign": "+",
    "equals sign": "=",
    "asterisk": "*",
}
EMOJI = {
    "grinning face": "😀",
    "heart eyes": "😍",
    "dog face": "🐶",
    "frog": "🐸",
    "tomato": "🍅",
    "burger": "🍔",
    "car": "🚗",
    "rocket": "🚀",
    "basketball": "🏀",
    "gift": "🎁",
    "cat face": "🐱",
    "panda": "🐼",
    "fire": "🔥",
    "tree": "🌳",
    "sunflower": "🌻",
    "banana": "🍌",
    "watermelon": "🍉",
    "pizza": "🍕",
    "umbrella": "☂",
    "guitar": "🎸",
    "bell": "🔔",
    "ghost": "👻",
    "penguin": "🐧",
    "globe": "🌍",
}


@dataclass(frozen=True)
class Task:
    """One data set. `template` turns a class name into its one-sentence description."""

    key: str
    title: str
    class_names: tuple[str, ...]
    template: str
    source: str
    license: str
    in_domain: bool
    train: int = 0
    concepts: tuple[str, ...] = field(default=())

    @property
    def group(self) -> str:
        """in_domain (an expert exists) or out_of_domain."""
        return "in_domain" if self.in_domain else "out_of_domain"

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The shared meaning of each class: a nine is a nine in three data sets."""
        return self.concepts or tuple(f"{self.key}/{name}" for name in self.class_names)

    @property
    def descriptions(self) -> list[str]:
        """One sentence per class."""
        return [self.template.format(name) for name in self.class_names]


FONTS = "own rendering of Debian font packages (see NOTICE)"
OPEN_FONTS = "SIL Open Font License 1.0/1.1, Apache-2.0 or public domain, by font (see NOTICE)"
OWN = "own procedural drawing"
OWN_LICENSE = "the repository's own license"
NUMBERS = tuple(f"number/{name}" for name in DIGITS)

TASKS = (
    Task(
        "digits",
        "Handwriting digits",
        DIGITS,
        "A handwritten digit {}, white on black.",
        FONTS,
        OPEN_FONTS,
        True,
        8000,
        NUMBERS,
    ),
    Task(
        "fashion",
        "Fashion",
        tuple(FASHION),
        "A product photo of clothing: {}.",
        "Fashion-MNIST (dataset-fashion-mnist)",
        "MIT",
        True,
        16000,
    ),
    Task(
        "street",
        "Street numbers",
        DIGITS,
        "A house number on a wall, its middle digit {}.",
        FONTS,
        OPEN_FONTS,
        True,
        8000,
        NUMBERS,
    ),
    Task(
        "letters",
        "Letters",
        tuple(LETTERS),
        "A printed capital letter {}.",
        FONTS,
        OPEN_FONTS,
        True,
        9000,
        tuple(f"capital/{name}" for name in LETTERS),
    ),
    Task("signs", "Traffic signs", tuple(SIGNS), "A traffic sign: {}.", OWN, OWN_LICENSE, True, 4000),
    Task("land", "Land use", tuple(LAND), "Land seen from above: {}.", OWN, OWN_LICENSE, True, 6000),
    Task("textures", "Textures", tuple(TEXTURES), "A {} texture.", OWN, OWN_LICENSE, True, 8000),
    Task("flags", "Flags", tuple(FLAGS), "The flag of {}.", "iso-flags-png-320x240", "public domain", True, 5000),
    Task(
        "uci_digits",
        "UCI digits",
        DIGITS,
        "A coarse scan of the digit {}.",
        "Optical Recognition of Handwritten Digits (UCI), from scikit-learn",
        "CC BY 4.0",
        False,
        0,
        NUMBERS,
    ),
    Task("kana", "Kana", tuple(KANA), "The hiragana {}.", FONTS, OPEN_FONTS, False),
    Task("greek", "Greek letters", tuple(GREEK), "The Greek letter {}, printed on paper.", FONTS, OPEN_FONTS, False),
    Task("cyrillic", "Cyrillic letters", tuple(CYRILLIC), "The Cyrillic letter {}.", FONTS, OPEN_FONTS, False),
    Task("symbols", "Symbols", tuple(SYMBOLS), "A printed {}.", FONTS, OPEN_FONTS, False),
    Task(
        "emoji",
        "Emoji",
        tuple(EMOJI),
        "An emoji: {}.",
        "Noto Color Emoji (fonts-noto-color-emoji)",
        "SIL Open Font License 1.1",
        False,
    ),
    Task("shapes", "Shapes", SHAPES, "A plain {}.", OWN, OWN_LICENSE, False),
)
IN_DOMAIN = tuple(task for task in TASKS if task.in_domain)
BY_KEY = {task.key: task for task in TASKS}
