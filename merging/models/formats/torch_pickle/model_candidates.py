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
MAX_WRAPPER_DEPTH = 4  # of the dictionaries around a model
MAX_SHARING_RATIO = 8  # of the tensors' bytes to the stored bytes
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
    """A candidate for the model: its path in the file, its tensors by name, and ``ignored`` entries beside them."""

    path: str
    tensors: dict[str, PickledCall] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    module: str = ""  # the class of a pickled module; empty for a state dict
    activations: set[str] = field(default_factory=set)  # names of the activations in a pickled module
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
        other_paths = [f"'{c.path}'" for c in candidates if c is not best and c.path]
        unused_note = f" (not used: {first_few(other_paths)})" if other_paths else ""
        notes.append(f"The model is stored in the file under '{best.path}'{unused_note}.")
    if best.ignored:
        cautions.append(f"Entries that are not tensors were ignored: {first_few(best.ignored)}.")
    tensors = _locate_tensors(best, label, opened.find_storage)
    _check_sharing(tensors, label)
    shared = _find_shared(tensors)
    if shared:
        notes.append(f"Some tensors share their numbers: {first_few(shared)}.")
    activation = min(best.activations) if len(best.activations) == 1 else ""
    return ModelTensors(tensors, activation, tuple(notes), tuple(cautions))


def _locate_tensors(best: Candidate, label: str, find_storage: FindStorage) -> dict[str, StoredTensor]:
    if len(best.tensors) > MAX_TENSORS:
        raise CheckpointError(f"{label} holds {len(best.tensors):,} tensors; refused.")
    return {
        name: locate_tensor(call, f"{label}: tensor {name[:80]!r}", find_storage) for name, call in best.tensors.items()
    }


def _check_sharing(tensors: dict[str, StoredTensor], label: str) -> None:
    """Raise CheckpointError if views make the tensors much larger than the stored numbers."""
    storages = {(t.storage.byte_range.start, t.storage.byte_range.size) for t in tensors.values()}
    stored = sum(size for _, size in storages)
    total = sum(tensor.info.nbytes for tensor in tensors.values())
    if total > MAX_SHARING_RATIO * stored:
        raise CheckpointError(f"{label}: its tensors are views that unfold {stored:,} bytes to {total:,}; refused.")


def _find_shared(tensors: dict[str, StoredTensor]) -> list[str]:
    """Pairs of names, 'a = b', of tensors that begin at the same stored number."""
    first_names: dict[tuple[int, int], str] = {}
    pairs = []
    for name, tensor in tensors.items():
        if tensor.info.numel:
            position = (tensor.storage.byte_range.start, tensor.offset)
            if first_names.setdefault(position, name) != name:
                pairs.append(f"{first_names[position][:60]} = {name[:60]}")
    return pairs


# --- search ----------------------------------------------------------------------------------------------------------


@dataclass
class SearchBudget:
    """A limit on the objects that the search reads; an object that occurs several times counts each time.

    An honest file has fewer objects than the instructions that its pickle may have.
    """

    label: str
    remaining: int = MAX_OPCODES

    def list_pairs(self, pickled_object: Any) -> list[tuple[Any, Any]] | None:
        """The pairs of an object; they are counted. Raises CheckpointError if the limit is exceeded."""
        pairs = _list_pairs(pickled_object)
        self.spend(1 + len(pairs or ()))
        return pairs

    def spend(self, count: int) -> None:
        """Count objects that are read. Raises CheckpointError if the limit is exceeded."""
        self.remaining -= count
        if self.remaining < 0:
            raise CheckpointError(f"{self.label}: the same parts occur in it too many times; refused.")


def _find_candidates(content: Any, budget: SearchBudget) -> Iterator[Candidate]:
    """All objects in the file that may be the model, outermost first."""
    queue = deque([("", content, 0)])
    visited_ids: set[int] = set()
    while queue:
        path, pickled_object, depth = queue.popleft()
        if id(pickled_object) in visited_ids:
            continue
        visited_ids.add(id(pickled_object))
        pairs = budget.list_pairs(pickled_object)
        if pairs is None:
            continue
        if isinstance(pickled_object, PickledCall) and _module_attributes(pairs) is not None:
            module = _make_module_candidate(pickled_object, path, budget)
            if module.tensors:
                yield module
            continue
        candidate = _make_state_dict_candidate(pairs, path)
        if candidate.tensors:
            yield candidate
        if depth < MAX_WRAPPER_DEPTH:
            inner = ((k, v) for k, v in pairs if isinstance(k, str) and not k.lower().startswith(SKIPPED_PREFIXES))
            queue.extend((f"{path}.{k[:40]}" if path else k[:40], v, depth + 1) for k, v in inner)


def _choose_best(candidates: list[Candidate], label: str) -> Candidate:
    """The candidate that is the model. Raises CheckpointError if several have the same rank."""
    vision_models = [
        candidate for candidate in candidates if any(name.endswith("class_embedding") for name in candidate.tensors)
    ]
    remaining = vision_models or candidates
    if remaining[0].path == "":  # tensors at the top level are always the model
        return remaining[0]
    remaining = [
        candidate for candidate in remaining if "ema" not in candidate.path.lower()
    ] or remaining  # moving averages of weights come last
    ranked = sorted(remaining, key=_rank)
    if len(ranked) > 1 and _rank(ranked[0]) == _rank(ranked[1]):
        descriptions = first_few(
            f"{candidate.path!r} ({plural(len(candidate.tensors), 'tensor')})" for candidate in ranked
        )
        raise CheckpointError(f"{label} holds several models: {descriptions}. Save the intended one alone.")
    return ranked[0]


def _rank(candidate: Candidate) -> int:
    """The position in ``MODEL_KEYS`` of the key under which a candidate is stored."""
    key = candidate.path.rsplit(".", maxsplit=1)[-1]
    return MODEL_KEYS.index(key) if key in MODEL_KEYS else len(MODEL_KEYS)


def _list_pairs(pickled_object: Any) -> list[tuple[Any, Any]] | None:
    """Keys and values of a dictionary, or the attributes of an object; None for anything else."""
    if isinstance(pickled_object, PickledDict):
        return pickled_object.pairs
    if not isinstance(pickled_object, PickledCall) or is_tensor(pickled_object):
        return None
    if str(pickled_object.name) in DICTIONARY_CLASSES or pickled_object.pairs:
        argument = pickled_object.args[0] if isinstance(pickled_object.args, tuple) and pickled_object.args else []
        items = argument if isinstance(argument, list) else []
        initial = [tuple(pair) for pair in items if isinstance(pair, (list, tuple)) and len(pair) == 2]
        return [*initial, *pickled_object.pairs]
    state = (
        pickled_object.state[0]
        if isinstance(pickled_object.state, tuple) and pickled_object.state
        else pickled_object.state
    )
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
            is_short = isinstance(key, (int, float)) and abs(key) < 1e30  # Python refuses to print long numbers
            candidate.key_errors.append(str(key) if is_short else _describe_kind(key))
    return candidate


# --- modules ---------------------------------------------------------------------------------------------------------


def _make_module_candidate(pickled_module: PickledCall, path: str, budget: SearchBudget) -> Candidate:
    """The candidate whose tensors are the state dict of a pickled module."""
    candidate = Candidate(path, module=str(pickled_module.name))
    stack: list[tuple[str, Any, int]] = [("", pickled_module, 0)]
    while stack:  # if modules contain each other, ``budget`` ends the search
        prefix, module, depth = stack.pop()
        attributes = _module_attributes(budget.list_pairs(module) if isinstance(module, PickledCall) else None)
        if attributes is None or depth > MAX_MODULE_DEPTH or len(prefix) > MAX_NAME_LENGTH:
            continue
        candidate.activations |= _find_activation(module, attributes)
        left_out = _read_texts(attributes.get("_non_persistent_buffers_set"), budget)
        for group in ("_parameters", "_buffers"):
            for key, value in budget.list_pairs(attributes.get(group)) or ():
                if isinstance(key, str) and is_tensor(value) and not (group == "_buffers" and key in left_out):
                    if len(key) > MAX_NAME_LENGTH:
                        raise CheckpointError(f"{budget.label}: a tensor's name has {len(key):,} letters; refused.")
                    candidate.tensors[prefix + key] = value
        inner = [
            (k, v) for k, v in budget.list_pairs(attributes["_modules"]) or () if isinstance(k, str) and len(k) < 200
        ]
        stack.extend((f"{prefix}{key}.", value, depth + 1) for key, value in reversed(inner))
    return candidate


def _find_activation(module: Any, attributes: dict[str, Any]) -> set[str]:
    """{name of the activation} if a module is a known activation, else empty."""
    class_name = module.name.name.rpartition(".")[2] if isinstance(module, PickledCall) else ""
    return (
        {ACTIVATION_CLASSES[class_name]}
        if class_name in ACTIVATION_CLASSES and attributes.get("approximate", "none") == "none"
        else set()
    )


def _module_attributes(pairs: list[tuple[Any, Any]] | None) -> dict[str, Any] | None:
    """A module's own attributes; None if the object is not a module."""
    attributes = {key: value for key, value in pairs or () if isinstance(key, str)}
    return attributes if "_parameters" in attributes and "_modules" in attributes else None


def _read_texts(pickled_set: Any, budget: SearchBudget) -> set[str]:
    """The texts in a set that was pickled with any protocol."""
    items = pickled_set if isinstance(pickled_set, list) else []
    if isinstance(pickled_set, PickledCall):
        argument = pickled_set.args[0] if isinstance(pickled_set.args, tuple) and pickled_set.args else []
        items = [*(argument if isinstance(argument, list) else []), *pickled_set.items]
    budget.spend(len(items))
    return {item for item in items if isinstance(item, str)}


TYPE_NOUNS = {str: "text", int: "a number", float: "a number", bool: "a truth value", list: "a list", tuple: "a tuple"}


def _describe_kind(pickled_object: Any) -> str:
    """The kind of an object, in a word or two."""
    if isinstance(pickled_object, PickledCall):
        name = str(pickled_object.name)
        return "a NumPy array" if name.startswith("numpy") else f"an object of {name[:60]}"
    if isinstance(pickled_object, (PickledDict, ByteRange, Name, Persistent)):
        return {PickledDict: "a dictionary", ByteRange: "bytes", Name: "a name", Persistent: "a storage"}[
            type(pickled_object)
        ]
    return "nothing" if pickled_object is None else TYPE_NOUNS.get(type(pickled_object), "something else")


def _describe(pickled_object: Any) -> str:
    """The kind of an object, and of its values if it is a dictionary."""
    value_kinds = dict.fromkeys(_describe_kind(value) for _, value in (_list_pairs(pickled_object) or ())[:100])
    return _describe_kind(pickled_object) + (f" with {first_few(value_kinds, 3)}" if value_kinds else "")
