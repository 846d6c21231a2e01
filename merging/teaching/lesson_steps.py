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

COMMON_FIELDS = ("kind", "page", "view", "chart", "controls", "outline", "say", "notes", "claims")
FIELDS_BY_KIND = {
    kinds.SAY: (*COMMON_FIELDS,),
    kinds.PREDICT: (*COMMON_FIELDS, "ask", "guess", "truth"),
    kinds.DO: (*COMMON_FIELDS, "goal", "hint", "show"),
    kinds.EXPLAIN: (*COMMON_FIELDS, "paper"),
    kinds.CHECK: (*COMMON_FIELDS, "ask", "answers"),
    kinds.FREE: (*COMMON_FIELDS, "ask"),
}
BOUND_FIELDS = ("is", "between", "at_least")
RUN_ARGUMENTS = ("run", "against", "runs", "sweep")
NUMBER_ARGUMENTS = ("ratio", "density", "experts", "n", "least", "perplexity", "depth")  # arguments of facts
SWITCH_ARGUMENTS = ("shared", "unit")
MAX_OPTIONS, MAX_POSITIONS, MAX_CELLS = 5, 7, 40
Facts = Mapping[str, FactSpec]


def parse_step(data: Any, number: int, facts: Facts, runs: Sequence[str]) -> LessonStep:
    """One step from plain data; ``facts`` and ``runs`` are those that the lesson declares. Raises LessonError."""
    description = f"step {number}"
    kind = LessonFields(
        data, description, sorted({name for names in FIELDS_BY_KIND.values() for name in names})
    ).read_choice("kind", FIELDS_BY_KIND)
    fields = LessonFields(data, f"{description} ({kind})", FIELDS_BY_KIND[kind])
    page = fields.check_name(fields.get("page"), "page") if fields.has("page") else ""
    chart = fields.check_name(fields.get("chart"), "chart") if fields.has("chart") else ""
    view = _check_aliases(fields.read_address("view"), fields.description, runs)
    if page and not chart and page != kinds.DESK_PAGE:
        raise LessonError(f"{fields.description} names a page without a chart. Name the chart that it shows.")
    if view and not page:
        raise LessonError(f"{fields.description} has a view without a page. Name the page, or leave the view out.")
    step = LessonStep(
        kind=kind,
        page=page,
        view=view,
        chart=chart,
        controls=tuple(fields.check_name(key, "controls") for key in fields.read_list("controls")),
        outline=fields.read_texts("outline"),
        say=fields.read_text("say", needed=kind in (kinds.SAY, kinds.DO, kinds.EXPLAIN)),
        ask=fields.read_text("ask", needed=kind in (kinds.PREDICT, kinds.CHECK, kinds.FREE)),
        notes=fields.read_text("notes"),
        hint=fields.read_text("hint"),
        show=_check_aliases(fields.read_address("show"), fields.description, runs),
        claims=tuple(
            _parse_goal(entry, f"a claim of {fields.description}", runs, facts) for entry in fields.read_list("claims")
        ),
        **_parse_kind_fields(kind, fields, facts, runs),
    )
    for text in step.texts:
        _check_placeholders(text, fields.description, facts)
    return step


def _parse_kind_fields(kind: str, fields: LessonFields, facts: Facts, runs: Sequence[str]) -> dict[str, Any]:
    """The fields that are specific to a kind of step."""
    if kind == kinds.PREDICT:
        guess = _parse_guess(fields.get("guess"), f"the guess of {fields.description}")
        return {"guess": guess, "truth": _parse_truth(fields, guess, facts, runs)}
    if kind == kinds.DO:
        return {"goal": _parse_goal(fields.get("goal"), f"the goal of {fields.description}", runs, facts)}
    if kind == kinds.EXPLAIN and fields.has("paper"):
        return {"paper": _parse_paper(fields.get("paper"), f"the paper of {fields.description}", facts, runs)}
    if kind == kinds.CHECK:
        return {"answers": _parse_answers(fields)}
    return {}


def _check_aliases(view: dict[str, str], description: str, runs: Sequence[str]) -> dict[str, str]:
    for key, value in view.items():
        for part in value.split(","):
            if part.startswith("@") and part[1:] not in runs:
                near = did_you_mean(part[1:], runs)
                raise LessonError(
                    f"{key} of {description} names the run {part[1:]!r}, which the lesson does not have.{near}"
                )
    return view


def _check_placeholders(text: str, description: str, facts: Facts) -> None:
    for placeholder in plain_text.find_placeholders(text):
        match = plain_text.PLACEHOLDER_NAME_PATTERN.fullmatch(placeholder)
        name = match.group(1) if match else placeholder
        if name not in facts:
            near = did_you_mean(name, facts)
            raise LessonError(
                f"a text of {description} names the fact {{{placeholder}}}, which is not among its facts.{near}"
            )


def parse_fact_spec(
    data: Any, description: str, runs: Sequence[str], facts: Facts | None = None, may_read_view: bool = False
) -> FactSpec:
    """The fact in plain data: the name of a declared fact, or a mapping with fact and arguments. Raises LessonError."""
    if isinstance(data, str) and facts is not None:
        if data in facts:
            return facts[data]
        raise LessonError(f"{description} names the fact {data!r}, which is not declared.{did_you_mean(data, facts)}")
    if not isinstance(data, dict) or not isinstance(data.get("fact"), str):
        raise LessonError(f"{description} is a mapping with fact and its arguments; got {reprlib.repr(data)}.")
    name = data["fact"]
    if name not in FACT_KINDS:
        raise LessonError(
            f"{description}: there is no fact {name!r}.{did_you_mean(name, FACT_KINDS)} Known: {', '.join(FACT_KINDS)}."
        )
    kind = FACT_KINDS[name]
    if kind.reads_view and not may_read_view:
        raise LessonError(f"{description}: {name} is read from the view on screen, so only a goal can name it.")
    fields = LessonFields(data, f"{description} ({name})", ("fact", *kind.needed, *kind.optional))
    for argument in kind.needed:
        if not fields.has(argument):
            raise LessonError(f"{fields.description} has no {argument}. {name} needs {', '.join(kind.needed)}.")
    arguments = {key: _parse_argument(key, fields) for key in data if key != "fact"}
    for argument in RUN_ARGUMENTS:
        for alias in _as_list(arguments.get(argument)):
            if alias not in runs:
                near = did_you_mean(str(alias), runs)
                raise LessonError(
                    f"{fields.description} names the run {alias!r}, which the lesson does not have.{near}"
                )
    return FactSpec(name, arguments)


def _parse_argument(key: str, fields: LessonFields) -> Any:
    """An argument, checked by its name: a number, true or false, a list of runs, or a word."""
    if key in NUMBER_ARGUMENTS:
        return _shorten_number(fields.read_number(key))
    value = fields.get(key)
    if key in SWITCH_ARGUMENTS and not isinstance(value, bool):
        raise LessonError(f"{key} of {fields.description} is true or false; got {reprlib.repr(value)}.")
    if key == "runs":
        return [fields.check_name(alias, "runs") for alias in fields.read_list("runs")]
    if key not in SWITCH_ARGUMENTS and not isinstance(value, (str, int, float)):
        raise LessonError(f"{key} of {fields.description} is a word or a number; got {reprlib.repr(value)}.")
    return value


def _shorten_number(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _parse_guess(data: Any, description: str) -> Guess:
    kind = LessonFields(data, description, kinds.GUESS_KINDS).find_only_field(kinds.GUESS_KINDS)
    known_fields = {
        kinds.NUMBER: ("low", "high", "unit"),
        kinds.CHOICE: ("options", "at"),
        kinds.ORDER: ("options",),
        kinds.CURVE: ("low", "high", "unit", "at", "axis"),
        kinds.CELLS: ("most",),
    }[kind]
    fields = LessonFields(data[kind], f"{description} ({kind})", known_fields)
    options, positions = (
        fields.read_texts("options"),
        tuple(fields.check_number(value, "at") for value in fields.read_list("at")),
    )
    low, high = fields.read_number("low", default=0), fields.read_number("high", default=100)
    max_cells = int(fields.read_number("most", 0, MAX_CELLS, default=0))
    if low >= high:
        raise LessonError(f"{fields.description} needs a low below its high; got {low:g} and {high:g}.")
    if kind in (kinds.CHOICE, kinds.ORDER) and not 2 <= len(options) <= MAX_OPTIONS:
        raise LessonError(f"{fields.description} has 2 to {MAX_OPTIONS} options; got {len(options)}.")
    if kind == kinds.CURVE and not 2 <= len(positions) <= MAX_POSITIONS:
        raise LessonError(f"{fields.description} has 2 to {MAX_POSITIONS} positions in at; got {len(positions)}.")
    if list(positions) != sorted(set(positions)) or (
        kind == kinds.CHOICE and positions and len(positions) != len(options) - 1
    ):
        raise LessonError(f"at of {fields.description} must increase, and a choice has one value fewer than options.")
    if kind == kinds.CELLS and not max_cells:
        raise LessonError(f"{fields.description} lacks the field most, the number of cells that may be marked.")
    return Guess(kind, low, high, fields.read_text("unit"), options, positions, fields.read_text("axis"), max_cells)


def _parse_truth(fields: LessonFields, guess: Guess, facts: Facts, runs: Sequence[str]) -> tuple[FactSpec, ...]:
    """The facts of the truth, one for each part of the guess.

    A choice may have none, or a single one, which the values in ``at`` divide into the options.
    """
    value = fields.get("truth")
    entries = value if isinstance(value, list) else [] if value is None else [value]
    truth = tuple(parse_fact_spec(entry, f"the truth of {fields.description}", runs, facts) for entry in entries)
    count = {
        kinds.NUMBER: {1},
        kinds.CELLS: {1},
        kinds.CHOICE: {1} if guess.at else {0, len(guess.options)},
        kinds.ORDER: {len(guess.options)},
        kinds.CURVE: {len(guess.at)},
    }[guess.kind]
    if len(truth) not in count:
        expected = " or ".join(str(number) for number in sorted(count))
        raise LessonError(f"the truth of {fields.description} has {expected} facts; got {len(truth)}.")
    return truth


def _parse_goal(data: Any, description: str, runs: Sequence[str], facts: Facts) -> Goal:
    target = "fact" if isinstance(data, dict) and "fact" in data else "key"
    if not isinstance(data, dict) or target not in data:
        raise LessonError(f"{description} is a mapping with fact or key, and one of {', '.join(BOUND_FIELDS)}.")
    bounds = LessonFields({key: data[key] for key in BOUND_FIELDS if key in data}, description, BOUND_FIELDS)
    target_fields = {key: value for key, value in data.items() if key not in BOUND_FIELDS}
    bound = bounds.find_only_field(BOUND_FIELDS)
    equal: str | float | None = None
    low = high = None
    if bound == "is":
        value = bounds.get("is")
        equal = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        equal = format_address_value(value, f"is of {description}") if equal is None else equal
    elif bound == "at_least":
        low = bounds.read_number("at_least")
    else:
        pair = bounds.read_list("between")
        if len(pair) != 2:
            raise LessonError(f"between of {description} is a list of two numbers; got {reprlib.repr(pair)}.")
        low, high = (bounds.check_number(value, "between") for value in pair)
    if target == "fact":
        spec = facts.get(data["fact"]) if len(target_fields) == 1 and isinstance(data["fact"], str) else None
        return Goal(spec or parse_fact_spec(target_fields, description, runs, may_read_view=True), "", equal, low, high)
    key = LessonFields(target_fields, description, ("key",))
    return Goal(None, key.check_name(key.get("key"), "key"), equal, low, high)


def _parse_paper(data: Any, description: str, facts: Facts, runs: Sequence[str]) -> Paper:
    fields = LessonFields(data, description, ("source", "where", "says", "ours"))
    says = dict(fields.read_mapping("says"))
    unit = says.pop("unit", "")
    numbers = {  # a name is checked like a text to show
        LessonFields({"text": name}, description, ("text",)).read_text("text", needed=True): fields.check_number(
            value, f"says {name}"
        )
        for name, value in says.items()
    }
    ours = tuple(parse_fact_spec(entry, f"ours of {description}", runs, facts) for entry in fields.read_list("ours"))
    if not numbers or len(numbers) != len(ours):
        raise LessonError(f"{description} says {len(numbers)} numbers and has {len(ours)} of ours; give one for each.")
    return Paper(
        fields.check_name(fields.get("source"), "source"),
        fields.read_text("where", needed=True),
        numbers,
        LessonFields({"unit": unit}, description, ("unit",)).read_text("unit"),
        ours,
    )


def _parse_answers(fields: LessonFields) -> tuple[CheckAnswer, ...]:
    answers = []
    for number, entry in enumerate(fields.read_list("answers"), 1):
        answer = LessonFields(entry, f"answer {number} of {fields.description}", ("text", "right", "say"))
        right = answer.get("right") or False
        if not isinstance(right, bool):
            raise LessonError(f"right of {answer.description} is true or false; got {reprlib.repr(right)}.")
        answers.append(
            CheckAnswer(answer.read_text("text", needed=True), right, answer.read_text("say", needed=not right))
        )
    if not 3 <= len(answers) <= 4 or sum(answer.right for answer in answers) != 1:
        raise LessonError(f"{fields.description} has 3 or 4 answers, one of them right.")
    return tuple(answers)
