"""Reads the steps of a lesson."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from merging.base.errors import LessonError
from merging.base.text import did_you_mean
from merging.teaching import lesson as kinds
from merging.teaching import plain_text
from merging.teaching.fact_kinds import FACT_KINDS
from merging.teaching.lesson import CheckAnswer, FactSpec, Goal, Guess, LessonStep, Paper
from merging.teaching.lesson_fields import LessonFields, format_address_value

COMMON = ("kind", "page", "view", "chart", "controls", "outline", "say", "notes", "claims")
FIELDS = {
    kinds.SAY: (*COMMON,),
    kinds.PREDICT: (*COMMON, "ask", "guess", "truth"),
    kinds.DO: (*COMMON, "goal", "hint", "show"),
    kinds.EXPLAIN: (*COMMON, "paper"),
    kinds.CHECK: (*COMMON, "ask", "answers"),
    kinds.FREE: (*COMMON, "ask"),
}
BOUNDS = ("is", "between", "at_least")
RUN_ARGUMENTS = ("run", "against", "runs", "sweep")
NUMBERS = ("ratio", "density", "experts", "n", "least", "perplexity", "depth")  # arguments of facts
SWITCHES = ("shared", "unit")
MOST_OPTIONS, MOST_POSITIONS, MOST_CELLS = 5, 7, 40
Facts = Mapping[str, FactSpec]


def parse_step(data: Any, number: int, facts: Facts, runs: Sequence[str]) -> LessonStep:
    """One step from plain data; ``facts`` and ``runs`` are those that the lesson declares. Raises LessonError."""
    what = f"step {number}"
    kind = LessonFields(data, what, sorted({name for names in FIELDS.values() for name in names})).choice(
        "kind", FIELDS
    )
    fields = LessonFields(data, f"{what} ({kind})", FIELDS[kind])
    page = fields.name(fields.get("page"), "page") if fields.has("page") else ""
    chart = fields.name(fields.get("chart"), "chart") if fields.has("chart") else ""
    view = _check_aliases(fields.address("view"), fields.what, runs)
    if page and not chart:
        raise LessonError(f"{fields.what} names a page without a chart. Name the chart that it is about.")
    if view and not page:
        raise LessonError(f"{fields.what} has a view without a page. Name the page, or leave the view out.")
    step = LessonStep(
        kind=kind,
        page=page,
        view=view,
        chart=chart,
        controls=tuple(fields.name(key, "controls") for key in fields.list("controls")),
        outline=fields.texts("outline"),
        say=fields.text("say", needed=kind in (kinds.SAY, kinds.DO, kinds.EXPLAIN)),
        ask=fields.text("ask", needed=kind in (kinds.PREDICT, kinds.CHECK, kinds.FREE)),
        notes=fields.text("notes"),
        hint=fields.text("hint"),
        show=_check_aliases(fields.address("show"), fields.what, runs),
        claims=tuple(_goal(entry, f"a claim of {fields.what}", runs, facts) for entry in fields.list("claims")),
        **_kind_fields(kind, fields, facts, runs),
    )
    for text in step.texts:
        _check_placeholders(text, fields.what, facts)
    return step


def _kind_fields(kind: str, fields: LessonFields, facts: Facts, runs: Sequence[str]) -> dict[str, Any]:
    """The fields that are specific to a kind of step."""
    if kind == kinds.PREDICT:
        guess = _guess(fields.get("guess"), f"the guess of {fields.what}")
        return {"guess": guess, "truth": _truth(fields, guess, facts, runs)}
    if kind == kinds.DO:
        return {"goal": _goal(fields.get("goal"), f"the goal of {fields.what}", runs, facts)}
    if kind == kinds.EXPLAIN and fields.has("paper"):
        return {"paper": _paper(fields.get("paper"), f"the paper of {fields.what}", facts, runs)}
    if kind == kinds.CHECK:
        return {"answers": _answers(fields)}
    return {}


def _check_aliases(view: dict[str, str], what: str, runs: Sequence[str]) -> dict[str, str]:
    for key, value in view.items():
        for part in value.split(","):
            if part.startswith("@") and part[1:] not in runs:
                near = did_you_mean(part[1:], runs)
                raise LessonError(f"{key} of {what} names the run {part[1:]!r}, which the lesson does not have.{near}")
    return view


def _check_placeholders(text: str, what: str, facts: Facts) -> None:
    for written in plain_text.find_placeholders(text):
        found = plain_text.NAME.fullmatch(written)
        name = found.group(1) if found else written
        if name not in facts:
            near = did_you_mean(name, facts)
            raise LessonError(f"a text of {what} names the fact {{{written}}}, which is not among its facts.{near}")


def parse_fact_spec(
    data: Any, what: str, runs: Sequence[str], facts: Facts | None = None, now: bool = False
) -> FactSpec:
    """The fact in plain data: the name of a declared fact, or a mapping with fact and arguments. Raises LessonError."""
    if isinstance(data, str) and facts is not None:
        if data in facts:
            return facts[data]
        raise LessonError(f"{what} names the fact {data!r}, which is not declared.{did_you_mean(data, facts)}")
    if not isinstance(data, dict) or not isinstance(data.get("fact"), str):
        raise LessonError(f"{what} is a mapping with fact and its arguments; got {reprlib.repr(data)}.")
    name = data["fact"]
    if name not in FACT_KINDS:
        raise LessonError(
            f"{what}: there is no fact {name!r}.{did_you_mean(name, FACT_KINDS)} Known: {', '.join(FACT_KINDS)}."
        )
    kind = FACT_KINDS[name]
    if kind.reads_view and not now:
        raise LessonError(f"{what}: {name} is read from the view on screen, so only a goal can name it.")
    fields = LessonFields(data, f"{what} ({name})", ("fact", *kind.needed, *kind.optional))
    for argument in kind.needed:
        if not fields.has(argument):
            raise LessonError(f"{fields.what} has no {argument}. {name} is asked with {', '.join(kind.needed)}.")
    arguments = {key: _argument(key, fields) for key in data if key != "fact"}
    for argument in RUN_ARGUMENTS:
        for alias in _as_list(arguments.get(argument)):
            if alias not in runs:
                near = did_you_mean(str(alias), runs)
                raise LessonError(f"{fields.what} names the run {alias!r}, which the lesson does not have.{near}")
    return FactSpec(name, arguments)


def _argument(key: str, fields: LessonFields) -> Any:
    """An argument, checked by its name: a number, true or false, a list of runs, or a word."""
    if key in NUMBERS:
        return _plain(fields.number(key))
    value = fields.get(key)
    if key in SWITCHES and not isinstance(value, bool):
        raise LessonError(f"{key} of {fields.what} is true or false; got {reprlib.repr(value)}.")
    if key == "runs":
        return [fields.name(alias, "runs") for alias in fields.list("runs")]
    if key not in SWITCHES and not isinstance(value, (str, int, float)):
        raise LessonError(f"{key} of {fields.what} is a word or a number; got {reprlib.repr(value)}.")
    return value


def _plain(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _guess(data: Any, what: str) -> Guess:
    kind = LessonFields(data, what, kinds.GUESSES).exactly_one(kinds.GUESSES)
    known = {
        kinds.NUMBER: ("low", "high", "unit"),
        kinds.CHOICE: ("options", "at"),
        kinds.ORDER: ("options",),
        kinds.CURVE: ("low", "high", "unit", "at", "axis"),
        kinds.CELLS: ("most",),
    }[kind]
    fields = LessonFields(data[kind], f"{what} ({kind})", known)
    options, at = fields.texts("options"), tuple(fields.finite(value, "at") for value in fields.list("at"))
    low, high = fields.number("low", default=0), fields.number("high", default=100)
    most = int(fields.number("most", 0, MOST_CELLS, default=0))
    if low >= high:
        raise LessonError(f"{fields.what} must have a low below its high; got {low:g} and {high:g}.")
    if kind in (kinds.CHOICE, kinds.ORDER) and not 2 <= len(options) <= MOST_OPTIONS:
        raise LessonError(f"{fields.what} has 2 to {MOST_OPTIONS} options; got {len(options)}.")
    if kind == kinds.CURVE and not 2 <= len(at) <= MOST_POSITIONS:
        raise LessonError(f"{fields.what} has 2 to {MOST_POSITIONS} positions in at; got {len(at)}.")
    if list(at) != sorted(set(at)) or (kind == kinds.CHOICE and at and len(at) != len(options) - 1):
        raise LessonError(f"at of {fields.what} must increase, and a choice has one value fewer than options.")
    if kind == kinds.CELLS and not most:
        raise LessonError(f"{fields.what} has no most, the number of cells that may be marked.")
    return Guess(kind, low, high, fields.text("unit"), options, at, fields.text("axis"), most)


def _truth(fields: LessonFields, guess: Guess, facts: Facts, runs: Sequence[str]) -> tuple[FactSpec, ...]:
    """The facts of the truth, one for each part of the guess; a choice may have none, or one that ``at`` divides."""
    value = fields.get("truth")
    entries = value if isinstance(value, list) else [] if value is None else [value]
    truth = tuple(parse_fact_spec(entry, f"the truth of {fields.what}", runs, facts) for entry in entries)
    count = {
        kinds.NUMBER: {1},
        kinds.CELLS: {1},
        kinds.CHOICE: {1} if guess.at else {0, len(guess.options)},
        kinds.ORDER: {len(guess.options)},
        kinds.CURVE: {len(guess.at)},
    }[guess.kind]
    if len(truth) not in count:
        expected = " or ".join(str(number) for number in sorted(count))
        raise LessonError(f"the truth of {fields.what} has {expected} facts; got {len(truth)}.")
    return truth


def _goal(data: Any, what: str, runs: Sequence[str], facts: Facts) -> Goal:
    target = "fact" if isinstance(data, dict) and "fact" in data else "key"
    if not isinstance(data, dict) or target not in data:
        raise LessonError(f"{what} is a mapping with fact or key, and one of {', '.join(BOUNDS)}.")
    bounds = LessonFields({key: data[key] for key in BOUNDS if key in data}, what, BOUNDS)
    others = {key: value for key, value in data.items() if key not in BOUNDS}
    bound = bounds.exactly_one(BOUNDS)
    equal: str | float | None = None
    low = high = None
    if bound == "is":
        value = bounds.get("is")
        equal = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        equal = format_address_value(value, f"is of {what}") if equal is None else equal
    elif bound == "at_least":
        low = bounds.number("at_least")
    else:
        pair = bounds.list("between")
        if len(pair) != 2:
            raise LessonError(f"between of {what} is a list of two numbers; got {reprlib.repr(pair)}.")
        low, high = (bounds.finite(value, "between") for value in pair)
    if target == "fact":
        spec = facts.get(data["fact"]) if len(others) == 1 and isinstance(data["fact"], str) else None
        return Goal(spec or parse_fact_spec(others, what, runs, now=True), "", equal, low, high)
    key = LessonFields(others, what, ("key",))
    return Goal(None, key.name(key.get("key"), "key"), equal, low, high)


def _paper(data: Any, what: str, facts: Facts, runs: Sequence[str]) -> Paper:
    fields = LessonFields(data, what, ("source", "where", "says", "ours"))
    says = dict(fields.mapping("says"))
    unit = says.pop("unit", "")
    numbers = {
        LessonFields({"text": name}, what, ("text",)).text("text", needed=True): fields.finite(value, f"says {name}")
        for name, value in says.items()
    }
    ours = tuple(parse_fact_spec(entry, f"ours of {what}", runs, facts) for entry in fields.list("ours"))
    if not numbers or len(numbers) != len(ours):
        raise LessonError(f"{what} says {len(numbers)} numbers and has {len(ours)} of ours; give one for each.")
    return Paper(
        fields.name(fields.get("source"), "source"),
        fields.text("where", needed=True),
        numbers,
        LessonFields({"unit": unit}, what, ("unit",)).text("unit"),
        ours,
    )


def _answers(fields: LessonFields) -> tuple[CheckAnswer, ...]:
    answers = []
    for number, entry in enumerate(fields.list("answers"), 1):
        answer = LessonFields(entry, f"answer {number} of {fields.what}", ("text", "right", "say"))
        right = answer.get("right") or False
        if not isinstance(right, bool):
            raise LessonError(f"right of {answer.what} is true or false; got {reprlib.repr(right)}.")
        answers.append(CheckAnswer(answer.text("text", needed=True), right, answer.text("say", needed=not right)))
    if not 3 <= len(answers) <= 4 or sum(answer.right for answer in answers) != 1:
        raise LessonError(f"{fields.what} has 3 or 4 answers, one of them right.")
    return tuple(answers)
