"""Changes of a program by pattern: `A < B -> A <= B` in a function, whatever its lines look like.

A change is written `FROM -> TO`, both in Python. A single capital letter stands for any part, the same letter for the
same part again, `_` for any part at all, and `...` for all others of a list: of arguments, elements, statements.

    A < B -> A <= B                 a comparison; or, of the sign alone, < -> <=
    A.sqrt() -> A                   a call left out
    f(A, ...) -> f(...)             an argument left out
    if A -> if False                the head of a statement; what it holds stays
    A.add(_) -> pass                a statement left out
    0.5 -> 0.25 (2 of 3)            the second of three such places; it is an error if there is another number of them
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Iterator
from typing import Any

COUNTED = re.compile(r" \((\d+) of (\d+)\)$")
BODIES = ("body", "orelse", "finalbody", "handlers")
UNREAD = ("ctx", "kind", "type_comment")  # they follow from the rest
Found = dict[str, Any]  # what letters and `...` stand for


def read_pattern(text: str) -> Any:
    """The sign, expression or statement that a text is; `if A` reads as `if A: ...`. Raises ValueError if none."""
    for whole in (text, f"{text}: ...", f"a {text} b"):
        try:
            (statement,) = ast.parse(whole).body
        except (SyntaxError, ValueError):
            continue
        match statement:
            case ast.Expr(ast.BinOp(op=sign) | ast.BoolOp(op=sign) | ast.Compare(ops=[sign])) if whole != text:
                return sign
        return statement
    raise ValueError(f"{text!r} is not one expression, statement, head of a statement or sign of an operation.")


def letter(node: object) -> str:
    """The letter or underscore that stands for any part; empty if this is none."""
    name = node.value if isinstance(node, ast.Expr) else node
    return name.id if isinstance(name, ast.Name) and re.fullmatch("[A-Z_]", name.id) else ""


def is_rest(node: object) -> bool:
    """Whether this is `...`, as an element, argument or statement."""
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def is_head(node: object) -> bool:
    """Whether only the head of this statement counts."""
    body = getattr(node, "body", None)
    return isinstance(body, list) and len(body) == 1 and is_rest(body[0])


def arguments(call: ast.Call, last: list[str | None]) -> list[ast.AST]:
    """The arguments of a call, those with the given names at the end."""
    return [*call.args, *sorted(call.keywords, key=lambda word: last.index(word.arg) if word.arg in last else -1)]


def matches(pattern: Any, node: Any, found: Found) -> bool:
    """Whether a node is what the pattern says; adds to `found` what its letters stand for."""
    if name := letter(pattern):
        known = node if name == "_" else found.setdefault(name, node)
        return isinstance(node, ast.expr | ast.stmt) and (known is node or ast.unparse(known) == ast.unparse(node))
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Call):
        last = [word.arg for word in pattern.keywords]
        same = matches(pattern.func, node.func, found)
        return same and matches(arguments(pattern, last), arguments(node, last), found)
    if isinstance(pattern, ast.AST):
        fields = set(pattern._fields).difference(UNREAD, BODIES if is_head(pattern) else ())
        return all(matches(getattr(pattern, field), getattr(node, field), found) for field in sorted(fields))
    if not isinstance(pattern, list):
        return bool(pattern == node)
    at = next((at for at, each in enumerate(pattern) if is_rest(each)), None)
    if at is not None and len(node) >= len(pattern) - 1:
        stop = len(node) - (len(pattern) - 1 - at)
        pattern, node, found["..."] = pattern[:at] + pattern[at + 1 :], node[:at] + node[stop:], node[at:stop]
    return len(pattern) == len(node) and all(matches(*pair, found) for pair in zip(pattern, node, strict=True))


def fill(template: Any, found: Found, node: Any) -> Any:
    """The template with what its letters stand for; the head of a statement keeps what the node holds."""
    if isinstance(template, list):
        parts = [found["..."] if is_rest(each) and "..." in found else [fill(each, found, node)] for each in template]
        return [part for several in parts for part in several]
    if name := letter(template):
        part = copy.deepcopy(found[name])
        return ast.Expr(part) if isinstance(template, ast.Expr) and isinstance(part, ast.expr) else part
    if not isinstance(template, ast.AST):
        return template
    held = {field: getattr(node, field) for field in BODIES if is_head(template) and hasattr(node, field)}
    filled = copy.copy(template)
    for field, value in ast.iter_fields(template):
        setattr(filled, field, held[field] if field in held else fill(value, found, node))
    if isinstance(filled, ast.Call):
        filled.keywords = [each for each in [*filled.args, *filled.keywords] if isinstance(each, ast.keyword)]
        filled.args = [each for each in filled.args if not isinstance(each, ast.keyword)]
    return filled


def find_parts(tree: ast.AST, path: str) -> list[ast.AST]:
    """Functions, classes and values with a dotted name in a module, as in `Class.method`; `module` is all of it."""
    parts = [tree]
    for name in path.split(".") if path != "module" else []:
        parts = [each for part in parts for each in getattr(part, "body", ()) if name in _defined(each)]
    return parts


def _defined(statement: ast.AST) -> list[str]:
    """The names that a statement of a module or class defines."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [getattr(statement, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))]


def find_places(part: ast.AST, pattern: Any) -> Iterator[tuple[ast.AST, str, int | None, Found]]:
    """Where a pattern matches, from the start: parent, field, place in the field, what letters are."""
    for field, value in ast.iter_fields(part):
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                found: Found = {}
                if matches(pattern, child, found):
                    yield part, field, at, found
                yield from find_places(child, pattern)


def foreign_names(template: ast.AST, tree: ast.AST) -> set[str]:
    """The names that a template uses and that nothing in the module is called."""
    names = [node for node in ast.walk(template) if isinstance(node, ast.Name) and not letter(node)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    if not (foreign := {node.id for node in names} - own - {*dir(builtins)}):
        return set()
    words = [str(getattr(node, field, "")) for node in ast.walk(tree) for field in ("id", "arg", "name", "asname")]
    return foreign.difference(re.findall(r"\w+", " ".join(words)))


def change(source: str, path: str, text: str) -> str:
    """A module's text after a change of the part of that name. Raises ValueError if it cannot be made just so."""
    tree, counted = ast.parse(source), COUNTED.search(text)
    number, total = map(int, counted.groups()) if counted else (1, 1)
    old, _, new = COUNTED.sub("", text).partition(" -> ")
    pattern, template = read_pattern(old), read_pattern(new)
    if isinstance(pattern, ast.Expr) and isinstance(template, ast.Expr):
        pattern, template = pattern.value, template.value
    if foreign := foreign_names(template, tree):
        raise ValueError(f"{text!r}: nothing in the file is called {sorted(foreign)}.")
    if not (parts := find_parts(tree, path)):
        raise ValueError(f"The file has no {path}.")
    places = [place for part in parts for place in find_places(part, pattern)]
    if len(places) != total or not 0 < number <= total:
        hint = "say which, as in (1 of 2)" if places else "compare it with the code"
        raise ValueError(f"{path}: {old!r} is there {len(places)} times, not {total}; {hint}.")
    parent, field, at, found = places[number - 1]
    value = getattr(parent, field)
    before = value if at is None else value[at]
    try:
        filled = fill(template, found, before)
    except KeyError as error:
        raise ValueError(f"{text!r} does not say what {error} is.") from None
    if ast.dump(before) == ast.dump(filled):
        raise ValueError(f"{path}: {text!r} changes nothing.")
    ast.fix_missing_locations(filled)
    setattr(parent, field, filled if at is None else [*value[:at], filled, *value[at + 1 :]])
    return ast.unparse(tree) + "\n"
