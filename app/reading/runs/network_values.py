"""The numbers of the network map: each quantity of a run's tensors, from stored tables and measurements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from app.reading import measurements, page_data
from app.reading.figures import cache_table
from merging.base.errors import CheckpointError
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.analysis.opposed_signs import share_opposed
from merging.study.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

TENSORS, COEFFICIENTS, FACTORS, PAIRS = "tensors", "coefficients", "factors", measurements.EXPERT_PAIRS
FACTS = [*measurements.TENSOR_COLUMNS, "numel"]
RESULT_QUANTITIES = ("final_mask", "coefficient", "factor", "drift", "moved", "kept_share")  # the most telling first
FULL_DENSITY = 1.0  # of the votes of signs: no entry is trimmed


class Source(NamedTuple):
    """Where a quantity comes from: ``read`` returns tensor, value and maybe expert, from a run and its measurement.

    ``measurement`` is the key of the measurement that the quantity needs, empty for a table of the run; ``table`` is
    the table that the run must have.
    """

    read: Callable[[Run, StoredMeasurement | None], pd.DataFrame]
    measurement: str = ""
    table: str = TENSORS

    def fits(self, run: Run, tables: Collection[str]) -> bool:
        """Whether the run's table is among ``tables``, and its network can be measured."""
        from merging.study.analysis.measurement_registry import find_measurement, find_refusal

        return self.table in tables and not (
            self.measurement and find_refusal(find_measurement(self.measurement), run.network)
        )


def _find_pruning(run: Run) -> Run | None:
    """The run with the saliency by which a run pruned tensors: itself, or one that shares its saliency."""
    from merging.study.runs.edit_pairs import find_same_saliency

    if page_data.SALIENCY in run.tables:
        return run
    return find_same_saliency(run, page_data.list_merges(page_data.stored_runs()))


def list_quantities(run: Run) -> list[str]:
    """The keys of the quantities that are stored for a run, or can be measured."""
    tables = {*run.tables, *([page_data.SALIENCY] if _find_pruning(run) else [])}
    return [key for key, source in SOURCES.items() if source.fits(run, tables)]


def list_stored_quantities(run: Run) -> list[str]:
    """The keys of the quantities that need no measurement or have one."""
    return [
        key
        for key in list_quantities(run)
        if not (name := SOURCES[key].measurement) or measurements.find_measurement(name, run.id)
    ]


def find_missing_measurement(run: Run, quantity: str) -> str:
    """The key of the measurement that the run lacks for this quantity; empty if it has all."""
    key = SOURCES[quantity].measurement
    return key if key and measurements.find_measurement(key, run.id) is None else ""


def read_map(run: Run, quantity: str) -> pd.DataFrame:
    """The table of the chart ``network_map``; without a value where nothing is stored.

    Raises:
        CheckpointError: the saliency must be measured, and a checkpoint of the run is missing or has changed.
    """
    source = SOURCES[quantity]
    stored = measurements.find_measurement(source.measurement, run.id) if source.measurement else None
    pairs = measurements.find_measurement(PAIRS, run.id)
    key = (run.id, quantity, *(str(one.path) if one else "" for one in (stored, pairs)))
    return _read_map_cached(key, run, stored, pairs)


@cache_table
def _read_map_cached(
    cache_key: tuple[str, ...], _run: Run, _stored: StoredMeasurement | None, _pairs: StoredMeasurement | None
) -> pd.DataFrame:
    import pandas as pd

    quantity = cache_key[1]
    tensors = page_data.run_table(_run.id, TENSORS)
    source = SOURCES[quantity]
    if source.measurement and _stored is None:
        values = pd.DataFrame({"tensor": tensors["tensor"], "value": float("nan")})
    else:
        values = source.read(_run, _stored)
    experts = pd.DataFrame({"expert": list(_run.experts)})
    rows = tensors[[*FACTS, "pretrained_norm"]].merge(experts, how="cross")
    on = ["tensor", "expert"] if "expert" in values else ["tensor"]
    rows = rows.merge(values[[*on, "value"]], on=on, how="left")
    return rows.drop(columns="pretrained_norm") if _pairs is None else _add_streams(rows, _run, _pairs)


def _add_streams(rows: pd.DataFrame, run: Run, pairs: StoredMeasurement) -> pd.DataFrame:
    """The rows with the columns of the experts' streams: sizes of updates, masks, and opposed signs."""
    squares = _with_names(pairs, "experts")[["tensor", "expert", "square"]]
    opposed = _read_opposed(pairs)
    rows = rows.assign(weight_square=rows.pop("pretrained_norm") ** 2)
    rows = rows.merge(squares, how="left").merge(opposed, how="left")
    if _find_pruning(run) is not None:
        masks = _read_saliency("final")(run, None)[["tensor", "expert", "final"]]
        rows = rows.merge(masks.rename(columns={"final": "kept"}), how="left")
    return rows


def _with_names(pairs: StoredMeasurement, name: str) -> pd.DataFrame:
    """A table of the measurement "pairs" with the names of its tensors."""
    tensors = measurements.measured_table(pairs, "tensors")[["order", "tensor"]]
    return measurements.measured_table(pairs, name).merge(tensors, on="order")


def _read_opposed(pairs: StoredMeasurement) -> pd.DataFrame:
    """The share of opposed signs by tensor and expert, over the scalars that both experts of a pair change."""
    import pandas as pd

    counts = _with_names(pairs, "pairs")
    sides = [counts.rename(columns={side: "expert"})[["tensor", "expert", "both_1", "opposed_1"]] for side in SIDES]
    return share_opposed(pd.concat(sides), ["tensor", "expert"]).reset_index()


SIDES = ("first", "second")  # columns of a pair's experts


def _read_saliency(column: str) -> Callable[[Run, StoredMeasurement | None], pd.DataFrame]:
    def read(run: Run, _: StoredMeasurement | None) -> pd.DataFrame:
        from merging.methods.shared.saliency import apply_ratio, join_thirds
        from merging.recipes.presets import read_settings

        table, is_pruned = page_data.saliency(run, page_data.list_merges(page_data.stored_runs()))
        if is_pruned:
            table = apply_ratio(table, *read_settings(run.recipe))
        table = join_thirds(table)
        return table.assign(value=table[column].astype(float))

    return read


def _read_ratio(upper: str, lower: str) -> Callable[[Run, StoredMeasurement | None], pd.DataFrame]:
    def read(run: Run, _: StoredMeasurement | None) -> pd.DataFrame:
        table = page_data.run_table(run.id, TENSORS)
        return table.assign(value=table[upper] / table[lower].where(table[lower] > 0))

    return read


def _read_bytes(run: Run, _: StoredMeasurement | None) -> pd.DataFrame:
    table = page_data.run_table(run.id, TENSORS)
    size = table["numel"] * table["itemsize"]
    return table.assign(value=size / size.sum())


def _read_update(run: Run, stored: StoredMeasurement | None) -> pd.DataFrame:
    assert stored is not None
    norms = page_data.run_table(run.id, TENSORS)[["tensor", "pretrained_norm"]]
    table = _with_names(stored, "experts").merge(norms, on="tensor")
    return table.assign(value=table["square"] ** 0.5 / table["pretrained_norm"].where(table["pretrained_norm"] > 0))


def _read_cosine(_: Run, stored: StoredMeasurement | None) -> pd.DataFrame:
    assert stored is not None
    squares = _with_names(stored, "experts").set_index(["tensor", "expert"])["square"]
    pairs = _with_names(stored, "pairs")
    for side in SIDES:
        size = squares.rename_axis(["tensor", side]).rename(f"{side}_square").reset_index()
        pairs = pairs.merge(size, on=["tensor", side])
    norms = (pairs["first_square"] * pairs["second_square"]) ** 0.5
    cosine = (pairs["dot"] / norms.where(norms > 0)).groupby(pairs["tensor"], sort=False).mean()
    return cosine.rename("value").reset_index()


def _read_agreement(_: Run, stored: StoredMeasurement | None) -> pd.DataFrame:
    assert stored is not None
    table = measurements.measured_table(stored, "agreement")
    table = table[(table["space"] == "weights") & (table["density"] == FULL_DENSITY)]
    table = table.merge(measurements.measured_table(stored, "layers")[["order", "tensor"]], on="order")
    return table.assign(value=table["mean"] - table["null"])


def _read_drift(_: Run, stored: StoredMeasurement | None) -> pd.DataFrame:
    assert stored is not None
    table = measurements.measured_table(stored, "isolated").rename(columns={"task": "expert"})
    return table.assign(value=table["relative"] ** 0.5)


def _read_put_back(over: str) -> Callable[[Run, StoredMeasurement | None], pd.DataFrame]:
    def read(_: Run, stored: StoredMeasurement | None) -> pd.DataFrame:
        assert stored is not None
        table = measurements.measured_table(stored, "changes")
        if "level" in table:  # measured, not predicted
            table = table[table["level"] == "tensor"].rename(columns={"name": "tensor", "change": "put_back"})
        table = table[(table["over"] == over) & (table["group"] == "average")]
        return table.assign(value=table["put_back"])

    return read


def _read_learned(name: str, column: str) -> Callable[[Run, StoredMeasurement | None], pd.DataFrame]:
    def read(run: Run, _: StoredMeasurement | None) -> pd.DataFrame:
        import pandas as pd

        table = page_data.run_table(run.id, name)
        table = table.rename(columns={"task": "expert"}).assign(value=table[column])
        if "tensor" in table and (table["tensor"].fillna("") != "").all():
            own = table.get("expert", pd.Series("", index=table.index)).isin(run.experts).all()
            return table if own else table.drop(columns="expert", errors="ignore").drop_duplicates("tensor")
        tensors = page_data.run_table(run.id, TENSORS)[["tensor"]]  # one coefficient for a whole expert
        return table.drop(columns="tensor", errors="ignore").merge(tensors, how="cross")

    return read


SOURCES = {
    "saliency": Source(_read_saliency("saliency")),
    "own_mask": Source(_read_saliency("kept"), table=page_data.SALIENCY),
    "final_mask": Source(_read_saliency("final"), table=page_data.SALIENCY),
    "kept_share": Source(_read_ratio("kept_numel", "numel")),
    "update": Source(_read_update, PAIRS),
    "moved": Source(_read_ratio("change_norm", "pretrained_norm")),
    "agreement": Source(_read_agreement, measurements.SIGNS),
    "cosine": Source(_read_cosine, PAIRS),
    "drift": Source(_read_drift, measurements.DRIFT),
    "put_back_in": Source(_read_put_back("in domain"), measurements.RESET_TO_PRETRAINED),
    "put_back_out": Source(_read_put_back("out of domain"), measurements.RESET_TO_PRETRAINED),
    "first_order_in": Source(_read_put_back("in domain"), measurements.RESET_FIRST_ORDER),
    "first_order_out": Source(_read_put_back("out of domain"), measurements.RESET_FIRST_ORDER),
    "coefficient": Source(_read_learned(COEFFICIENTS, "coefficient"), table=COEFFICIENTS),
    "factor": Source(_read_learned(FACTORS, "factor"), table=FACTORS),
    "bytes": Source(_read_bytes),
}


def read_difference(run: Run, other_run: Run, quantity: str) -> pd.DataFrame:
    """The table of ``read_map`` of the first run, with the other run's values minus its own.

    Raises:
        CheckpointError: as ``read_map``; or the two runs have no tensor in common.
    """
    ours, theirs = read_map(run, quantity), read_map(other_run, quantity)
    on = ["tensor", "expert"]
    both = ours.merge(theirs[[*on, "value"]], on=on, suffixes=("", "_other"))
    if both.empty:
        raise CheckpointError("These two runs merge different networks or experts, so no tensor can be compared.")
    return both.assign(value=both["value_other"] - both["value"]).drop(columns="value_other")


def read_map_of(run: Run, values: pd.Series[Any]) -> pd.DataFrame:
    """The table of ``read_map`` with values by tensor and expert that are not stored."""
    table = read_map(run, "kept_share")
    return table.assign(value=values.reindex(list(zip(table["tensor"], table["expert"], strict=True))).to_numpy(float))


def choose_quantity(run: Run, preferred: Sequence[str], shown: Iterable[str] = ()) -> str:
    """The first preferred quantity that is stored for the run or is in ``shown``; else any of these."""
    stored = [*shown, *list_stored_quantities(run)]
    return next((key for key in preferred if key in stored), stored[0] if stored else "kept_share")
