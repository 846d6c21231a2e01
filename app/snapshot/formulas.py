"""Formulas in the part of LaTeX that the glossary and lessons use, as MathML, which browsers draw without a program."""

from __future__ import annotations

import re
from html import escape

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[{}^_&]|\d+(?:\.\d+)?|[a-zA-Z]|\S")
SIGNS = {  # commands that are one sign; letters are identifiers, the rest operators
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "theta": "θ", "lambda": "λ", "mu": "μ",
    "phi": "φ", "pi": "π", "Pi": "Π", "rho": "ρ", "sigma": "σ", "Sigma": "Σ", "tau": "τ", "ell": "ℓ", "Delta": "Δ",
    "cdot": "⋅", "cdots": "⋯", "dots": "…", "circ": "∘", "in": "∈", "notin": "∉", "neq": "≠", "le": "≤", "leq": "≤",
    "ge": "≥", "geq": "≥", "approx": "≈", "sim": "∼", "pm": "±", "times": "×", "odot": "⊙", "langle": "⟨",
    "rangle": "⟩", "mapsto": "↦", "to": "→", "top": "⊤", "sum": "∑", "prod": "∏", "partial": "∂", "nabla": "∇",
    "infty": "∞", "|": "‖", "{": "{", "}": "}", "%": "%", "mid": "∣",
}  # fmt: skip
NAMES = {"cos", "sin", "log", "exp", "min", "max", "arg"}
SPACES = {",": "0.17em", ";": "0.28em", " ": "0.33em", "quad": "1em", "!": "0em"}
SIZES = {"big", "Big", "bigl", "bigr", "left", "right", "textstyle", "displaystyle", "bigg"}
TEXTS = {"mathrm": "normal", "text": "normal", "mathbb": "double-struck", "operatorname": "normal", "mathbf": "bold"}
DOUBLE = {"R": "ℝ", "E": "𝔼", "N": "ℕ"}
OVER = {"bar": "¯", "hat": "^", "tilde": "~"}


def mathml(latex: str) -> str:
    """A formula as MathML; one that is written otherwise than ours stays as it is, as code."""
    tokens = TOKEN.findall(re.sub(r"\\ ", r"\\; ", latex))
    try:
        inner, rest = _row(tokens, 0, "")
    except (IndexError, KeyError, RecursionError):
        rest = -1
    if rest != len(tokens):
        return f"<code>{escape(latex)}</code>"
    source = f'<annotation encoding="application/x-tex">{escape(latex)}</annotation>'
    return f"<math><semantics><mrow>{inner}</mrow>{source}</semantics></math>"


def _row(tokens: list[str], at: int, end: str) -> tuple[str, int]:
    """Pieces up to the token ``end``, or to the end of all."""
    parts: list[str] = []
    while at < len(tokens) and tokens[at] != end:
        if tokens[at] in "^_":
            parts[-1], at = _scripts(parts[-1], tokens, at)
        else:
            part, at = _piece(tokens, at)
            parts.append(part)
    if end and (at >= len(tokens) or tokens[at] != end):
        raise IndexError
    return "".join(parts), at + bool(end)


def _scripts(base: str, tokens: list[str], at: int) -> tuple[str, int]:
    """A base with what stands below and above it."""
    scripts: dict[str, str] = {}
    while at < len(tokens) and tokens[at] in "^_" and tokens[at] not in scripts:
        sign = tokens[at]
        scripts[sign], at = _piece(tokens, at + 1)
    limits = base.startswith(("<mo>∑", "<mo>∏", "<munder>"))
    names = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
    kind = names[2 if len(scripts) == 2 else int("^" in scripts)]
    return f"<{kind}>{base or '<mrow></mrow>'}{scripts.get('_', '')}{scripts.get('^', '')}</{kind}>", at


def _piece(tokens: list[str], at: int) -> tuple[str, int]:
    """One piece: a group, a sign, or a command with its arguments."""
    token = tokens[at]
    if token == "{":
        inner, at = _row(tokens, at + 1, "}")
        return f"<mrow>{inner}</mrow>", at
    if token.startswith("\\"):
        return _command(token[1:], tokens, at + 1)
    if token in "}&":
        raise KeyError(token)
    return _sign(token), at + 1


def _sign(sign: str) -> str:
    kind = "mn" if sign[0].isdigit() else "mi" if sign.isalpha() or sign in "∞" else "mo"
    fixed = ' stretchy="false"' if sign in "()[]{}|‖⟨⟩" else ""
    return f"<{kind}{fixed}>{escape({'-': '−', chr(39): '′'}.get(sign, sign))}</{kind}>"


def _command(name: str, tokens: list[str], at: int) -> tuple[str, int]:
    """A command that is a sign, a space or a name, or that has arguments."""
    if name in SIZES or name in SPACES:
        return (f'<mspace width="{SPACES[name]}"></mspace>' if name in SPACES else ""), at
    if name in SIGNS or name in NAMES:
        return (_sign(SIGNS[name]) if name in SIGNS else f"<mi>{name}</mi>"), at
    if name in TEXTS:
        return _letters(name, tokens, at)
    inner, at = _piece(tokens, at)
    if name in ("frac", "tfrac"):
        below, at = _piece(tokens, at)
        return f"<mfrac>{inner}{below}</mfrac>", at
    forms = {"sqrt": f"<msqrt>{inner}</msqrt>", "underbrace": f"<munder>{inner}<mo>⏟</mo></munder>"}
    return forms.get(name) or f'<mover accent="true">{inner}<mo>{OVER[name]}</mo></mover>', at


def _letters(name: str, tokens: list[str], at: int) -> tuple[str, int]:
    """A group of letters in one style."""
    style, end = TEXTS[name], tokens.index("}", at)
    word = "".join(tokens[at + 1 : end])
    if style == "double-struck":
        return f"<mi>{DOUBLE[word]}</mi>", end + 1
    return f'<mi mathvariant="normal">{escape(word)}</mi>', end + 1
