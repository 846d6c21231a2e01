"""Finds the model in a pickled file: a state dict, one inside a trainer's wrapper, or a whole module."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from merging.base.errors import CheckpointError
from merging.base.text import first_few, plural
from merging.models.formats.byte_range import ByteRange
from merging.models.formats.torch_pickle.containers import PickleContents
from merging.models.formats.torch_pickle.interpreter import MAX_OPCODES, Name, Persistent, PickledCall, PickledDict
from merging.models.formats.torch_pickle.stored_tensors import FindStorage, StoredTensor, is_tensor, locate_tensor
from merging.models.tensor_info import MAX_TENSORS

MAX_MODULE_DEPTH = 32  # of nested modules
MAX_NAME_LENGTH = 1000  # letters of a tensor's name
MAX_WRAPPER_DEPTH = 4  # depth of wrappers up to which a model is searched
MAX_SHARING_RATIO = 8  # largest ratio of the tensors' bytes to the stored bytes
DICTIONARY_CLASSES = {"collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"}
# Keys under which trainers store the model, best first.
MODEL_KEYS = (
    "state_dict", "model_state_dict", "model", "module", "image_encoder", "net", "network", "encoder", "student",
    "weights", "params",
)  # fmt: skip
# Last part of an activation's class name -> name in this program.
ACTIVATION_CLASSES = {
    "QuickGELU": "quick_gelu", "QuickGELUActivation": "quick_gelu", "GELU": "gelu", "GELUActivation": "gelu",
}  # fmt: skip
# Prefixes of keys under which trainers store other objects.
SKIPPED_PREFIXES = ("optim", "sched", "scaler", "loss", "rng", "callbacks", "hyper_parameters", "args", "config")


@dataclass
class Candidate:
    """A candidate for the model: its path in the file, its tensors by name, and the entries beside them."""

    path: str
    tensors: dict[str, PickledCall] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    module: str = ""  # the class, if it is a whole module
    activations: set[str] = field(default_factory=set)  # those in a whole module
    key_errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ModelTensors:
    """The model of a file: its stored tensors, and notes and cautions about how it was found."""

    tensors: dict[str, StoredTensor]
    activation: str  # empty if unknown
    notes: tuple[str, ...]
    cautions: tuple[str, ...]


def find_model(opened: PickleContents, window: ByteRange) -> ModelTensors:
    """The model that a pickled file holds.

    Raises:
        CheckpointError: the file has no model or several of equal rank, or a tensor cannot be merged.
    """
    label, content = window.name, opened.content
    if is_tensor(content):
        raise CheckpointError(f"{label} holds a single tensor, not a state dict or a module.")
    candidates = list(_find_candidates(content, SearchBudget(label)))
    if not candidates:
        raise CheckpointError(f"{label} holds no state dict and no module: it is {_describe(content)}.")
    best = _choose_best(candidates, label)
    if best.key_errors:
        raise CheckpointError(f"{label} has keys that are not names: {first_few(best.key_errors)}.")
    notes, cautions = [], []
    if best.module:
        notes.append(f"It is a whole module of class {best.module[:80]}, opened without running its code.")
    if best.path:
        others = [f"'{c.path}'" for c in candidates if c is not best and c.path]
        beside = f" (not used: {first_few(others)})" if others else ""
        notes.append(f"The model is what the file keeps under '{best.path}'{beside}.")
    if best.ignored:
        cautions.append(f"Entries that are not tensors were ignored: {first_few(best.ignored)}.")
    tensors = _locate_tensors(best, label, opened.resolve)
    _check_sharing(tensors, label)
    shared = _find_shared(tensors)
    if shared:
        notes.append(f"Some tensors share their numbers: {first_few(shared)}.")
    activation = min(best.activations) if len(best.activations) == 1 else ""
    return ModelTensors(tensors, activation, tuple(notes), tuple(cautions))


def _locate_tensors(best: Candidate, label: str, resolve: FindStorage) -> dict[str, StoredTensor]:
    if len(best.tensors) > MAX_TENSORS:
        raise CheckpointError(f"{label} holds {len(best.tensors):,} tensors; refused.")
    return {name: locate_tensor(call, f"{label}: tensor {name[:80]!r}", resolve) for name, call in best.tensors.items()}


def _check_sharing(tensors: dict[str, StoredTensor], label: str) -> None:
    storages = {(t.storage.window.start, t.storage.window.size) for t in tensors.values()}
    stored = sum(size for _, size in storages)
    total = sum(tensor.info.nbytes for tensor in tensors.values())
    if total > MAX_SHARING_RATIO * stored:
        raise CheckpointError(f"{label}: its tensors are views that unfold {stored:,} bytes to {total:,}; refused.")


def _find_shared(tensors: dict[str, StoredTensor]) -> list[str]:
    first: dict[tuple[int, int], str] = {}
    pairs = []
    for name, tensor in tensors.items():
        if tensor.info.numel:
            position = (tensor.storage.window.start, tensor.offset)
            if first.setdefault(position, name) != name:
                pairs.append(f"{first[position][:60]} = {name[:60]}")
    return pairs


# --- search ----------------------------------------------------------------------------------------------------------


@dataclass
class SearchBudget:
    """A limit on the objects that the search reads; a dictionary that occurs several times counts every time.

    An honest file has fewer objects than its pickle may have instructions.
    """

    label: str
    left: int = MAX_OPCODES

    def pairs(self, thing: Any) -> list[tuple[Any, Any]] | None:
        """The pairs of an object, which are counted; raises CheckpointError if the limit is exceeded."""
        pairs = _list_pairs(thing)
        self.take(1 + len(pairs or ()))
        return pairs

    def take(self, count: int) -> None:
        """Count objects that are read. Raises CheckpointError if the limit is exceeded."""
        self.left -= count
        if self.left < 0:
            raise CheckpointError(f"{self.label}: the same parts occur in it too many times; refused.")


def _find_candidates(content: Any, budget: SearchBudget) -> Iterator[Candidate]:
    """All objects in the file that can be the model, outermost first."""
    waiting = deque([("", content, 0)])
    seen: set[int] = set()
    while waiting:
        path, thing, depth = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        pairs = budget.pairs(thing)
        if pairs is None:
            continue
        if isinstance(thing, PickledCall) and _module_attributes(pairs) is not None:
            module = _make_module_candidate(thing, path, budget)
            if module.tensors:
                yield module
            continue
        candidate = _make_state_dict_candidate(pairs, path)
        if candidate.tensors:
            yield candidate
        if depth < MAX_WRAPPER_DEPTH:
            inner = ((k, v) for k, v in pairs if isinstance(k, str) and not k.lower().startswith(SKIPPED_PREFIXES))
            waiting.extend((f"{path}.{k[:40]}" if path else k[:40], v, depth + 1) for k, v in inner)


def _choose_best(candidates: list[Candidate], label: str) -> Candidate:
    """The candidate that is the model. Raises CheckpointError if several have the same rank."""
    vision = [one for one in candidates if any(name.endswith("class_embedding") for name in one.tensors)]
    remaining = vision or candidates
    if remaining[0].path == "":  # tensors at the top level are the model
        return remaining[0]
    remaining = [one for one in remaining if "ema" not in one.path.lower()] or remaining  # no moving averages
    ranked = sorted(remaining, key=_rank)
    if len(ranked) > 1 and _rank(ranked[0]) == _rank(ranked[1]):
        listed = first_few(f"{one.path!r} ({plural(len(one.tensors), 'tensor')})" for one in ranked)
        raise CheckpointError(f"{label} holds several models: {listed}. Save the intended one alone.")
    return ranked[0]


def _rank(one: Candidate) -> int:
    last = one.path.rsplit(".", maxsplit=1)[-1]
    return MODEL_KEYS.index(last) if last in MODEL_KEYS else len(MODEL_KEYS)


def _list_pairs(thing: Any) -> list[tuple[Any, Any]] | None:
    """Keys and values of a dictionary, or the attributes of an object; None for anything else."""
    if isinstance(thing, PickledDict):
        return thing.pairs
    if not isinstance(thing, PickledCall) or is_tensor(thing):
        return None
    if str(thing.name) in DICTIONARY_CLASSES or thing.pairs:
        argument = thing.args[0] if isinstance(thing.args, tuple) and thing.args else []
        listed = argument if isinstance(argument, list) else []
        initial = [tuple(pair) for pair in listed if isinstance(pair, (list, tuple)) and len(pair) == 2]
        return [*initial, *thing.pairs]
    state = thing.state[0] if isinstance(thing.state, tuple) and thing.state else thing.state
    return state.pairs if isinstance(state, PickledDict) else None


def _make_state_dict_candidate(pairs: list[tuple[Any, Any]], path: str) -> Candidate:
    candidate = Candidate(path)
    for key, value in pairs:
        if not is_tensor(value):
            candidate.ignored.append(f"{str(key)[:40] if isinstance(key, str) else '?'} ({_describe_kind(value)})")
        elif isinstance(key, str):
            candidate.tensors[key] = value
        else:
            candidate.tensors["?"] = value
            short = isinstance(key, (int, float)) and abs(key) < 1e30  # Python refuses to print long numbers
            candidate.key_errors.append(str(key) if short else _describe_kind(key))
    return candidate


# --- modules ---------------------------------------------------------------------------------------------------------


def _make_module_candidate(thing: PickledCall, path: str, budget: SearchBudget) -> Candidate:
    """The candidate with the state dict of a whole module."""
    candidate = Candidate(path, module=str(thing.name))
    waiting: list[tuple[str, Any, int]] = [("", thing, 0)]
    while waiting:  # modules may contain each other: ``budget`` ends the search
        prefix, module, depth = waiting.pop()
        parts = _module_attributes(budget.pairs(module) if isinstance(module, PickledCall) else None)
        if parts is None or depth > MAX_MODULE_DEPTH or len(prefix) > MAX_NAME_LENGTH:
            continue
        candidate.activations |= _find_activation(module, parts)
        left_out = _read_texts(parts.get("_non_persistent_buffers_set"), budget)
        for group in ("_parameters", "_buffers"):
            for key, value in budget.pairs(parts.get(group)) or ():
                if isinstance(key, str) and is_tensor(value) and not (group == "_buffers" and key in left_out):
                    if len(key) > MAX_NAME_LENGTH:
                        raise CheckpointError(f"{budget.label}: a tensor's name has {len(key):,} letters; refused.")
                    candidate.tensors[prefix + key] = value
        inner = [(k, v) for k, v in budget.pairs(parts["_modules"]) or () if isinstance(k, str) and len(k) < 200]
        waiting.extend((f"{prefix}{key}.", value, depth + 1) for key, value in reversed(inner))
    return candidate


def _find_activation(module: Any, parts: dict[str, Any]) -> set[str]:
    """{name of the activation} if a module is a known activation, else empty."""
    last = module.name.name.rpartition(".")[2] if isinstance(module, PickledCall) else ""
    return (
        {ACTIVATION_CLASSES[last]}
        if last in ACTIVATION_CLASSES and parts.get("approximate", "none") == "none"
        else set()
    )


def _module_attributes(pairs: list[tuple[Any, Any]] | None) -> dict[str, Any] | None:
    """A module's own attributes; None if the object is not a module."""
    named = {key: value for key, value in pairs or () if isinstance(key, str)}
    return named if "_parameters" in named and "_modules" in named else None


def _read_texts(thing: Any, budget: SearchBudget) -> set[str]:
    """The texts in a pickled set, in any protocol."""
    items = thing if isinstance(thing, list) else []
    if isinstance(thing, PickledCall):
        argument = thing.args[0] if isinstance(thing.args, tuple) and thing.args else []
        items = [*(argument if isinstance(argument, list) else []), *thing.items]
    budget.take(len(items))
    return {item for item in items if isinstance(item, str)}


TYPE_NOUNS = {str: "text", int: "a number", float: "a number", bool: "a truth value", list: "a list", tuple: "a tuple"}


def _describe_kind(thing: Any) -> str:
    """The kind of an object, in a word or two."""
    if isinstance(thing, PickledCall):
        name = str(thing.name)
        return "a NumPy array" if name.startswith("numpy") else f"an object of {name[:60]}"
    if isinstance(thing, (PickledDict, ByteRange, Name, Persistent)):
        return {PickledDict: "a dictionary", ByteRange: "bytes", Name: "a name", Persistent: "a storage"}[type(thing)]
    return "nothing" if thing is None else TYPE_NOUNS.get(type(thing), "something else")


def _describe(thing: Any) -> str:
    """The kind of an object, and of its values if it is a dictionary."""
    inside = dict.fromkeys(_describe_kind(value) for _, value in (_list_pairs(thing) or ())[:100])
    return _describe_kind(thing) + (f" with {first_few(inside, 3)}" if inside else "")
