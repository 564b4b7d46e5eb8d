"""`tables.Date`: columns of dates as numbers of the calendar, against Python's `datetime`."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import wellfed as wf
from wellfed import tables as t

ROWS = 120
EPOCH = dt.datetime(1970, 1, 1)
TYPES = {
    "day": pa.date32(),
    "milliday": pa.date64(),
    "s": pa.timestamp("s"),
    "ms": pa.timestamp("ms"),
    "us": pa.timestamp("us"),
    "ns": pa.timestamp("ns", tz="UTC"),
}


def times(seed: int, unit: str) -> list[dt.datetime | None]:
    """Moments from 1900 to 2100 that a column of this type holds; None is null."""
    rng = random.Random(seed)
    made: list[dt.datetime | None] = []
    for _ in range(ROWS):
        time = EPOCH + dt.timedelta(microseconds=rng.randrange(-(2**51), 2**52))
        if "day" in unit:
            time = dt.datetime(time.year, time.month, time.day)
        elif unit == "s":
            time = time.replace(microsecond=0)
        elif unit == "ms":
            time = time.replace(microsecond=time.microsecond // 1000 * 1000)
        made.append(None if rng.random() < 0.1 else time)
    return made


def part(time: dt.datetime, name: str) -> float:
    if name == "quarter":
        return (time.month - 1) // 3 + 1
    if name == "dayofyear":
        return time.timetuple().tm_yday
    if name == "dayofweek":
        return time.weekday()
    if name == "timestamp":
        return (time - EPOCH) / dt.timedelta(seconds=1)
    return float(getattr(time, name))


def wanted(values: list[dt.datetime | None], parts: list[str], missing: float) -> np.ndarray:
    rows = [
        [missing] * len(parts) + [1] if value is None else [*(part(value, p) for p in parts), 0]
        for value in values
    ]
    return np.array(rows, np.float64)


def stacked(ds: wf.Dataset, date: t.Date, dtype: str = "float64") -> np.ndarray:
    batches = list(ds.stack([date], dtype).batch(50).numpy())
    return np.concatenate([batch["features"] for batch in batches])


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("unit", TYPES)
def test_dates_and_timestamps(unit: str, form: str, tmp_path: Path) -> None:
    values = times(len(unit), unit)
    zone = dt.timezone.utc if unit == "ns" else None
    given = [value and value.replace(tzinfo=zone) for value in values]
    table = pa.table({"when": pa.array(given, TYPES[unit])})
    if form == "parquet":
        pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=31)
        ds = wf.parquet(tmp_path / "t.parquet")
    else:
        pa.feather.write_feather(table, tmp_path / "t.arrow")
        ds = wf.arrow(tmp_path / "t.arrow")
    parts = list(t.PARTS)
    found = stacked(ds, t.Date("when", parts, missing=-1, indicator=True))
    np.testing.assert_array_equal(found, wanted(values, parts, -1))
    whole = stacked(ds, t.Date("when", ["second", "timestamp"], missing=-1, indicator=True), "int64")
    floored = [value and value.replace(microsecond=0) for value in values]
    np.testing.assert_array_equal(whole, wanted(floored, ["second", "timestamp"], -1))


@pytest.mark.parametrize("form", [None, "%d.%m.%Y %H:%M:%S%.f"])
def test_texts(form: str | None, tmp_path: Path) -> None:
    values = times(7, "us")

    def written(value: dt.datetime | None) -> str:
        if value is None:
            return ""
        return (
            value.isoformat()
            if form is None
            else value.strftime("%d.%m.") + value.strftime(f"{value.year:04} %H:%M:%S.%f")
        )

    lines = [f"{number},{written(value)}" for number, value in enumerate(values)]
    (tmp_path / "t.csv").write_text("\n".join(["id,when", *lines]))
    found = stacked(wf.csv(tmp_path / "t.csv"), t.Date("when", t.PARTS, form, missing=0, indicator=True))
    np.testing.assert_array_equal(found, wanted(values, list(t.PARTS), 0))


def test_what_is_no_date_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,when\n1,2024-02-29\n2,2023-02-29\n3,\n4,2024-03-01T00:30+01:00\n")
    ds = wf.csv(tmp_path / "t.csv")
    with pytest.raises(wf.CorruptSampleError, match=r"2023-02-29.*no date of this form[\s\S]*format="):
        list(ds.stack([t.Date("when")]).batch(4).numpy())
    (tmp_path / "missing.csv").write_text("id,when\n1,2024-02-29\n3,\n")
    with pytest.raises(wf.CorruptSampleError, match=r"no date[\s\S]*missing=0"):
        list(wf.csv(tmp_path / "missing.csv").stack([t.Date("when")]).batch(4).numpy())
    kept = ds.stack([t.Date("when")]).with_options(on_error="skip").batch(4).numpy()
    np.testing.assert_array_equal(next(iter(kept))["features"], [[2024, 2, 29], [2024, 2, 29]])


@pytest.mark.parametrize(
    ("date", "dtype", "said"),
    [
        (lambda: t.Date("when", ["weekday"]), "float32", "weekday.*there are year"),
        (lambda: t.Date("when", []), "float32", "no part"),
        (lambda: t.Date("when", format="%Q"), "float32", "no format of dates"),
        (lambda: t.Date("when", ["timestamp"]), "float32", "float64 or int64"),
        (lambda: t.Date("when", missing=0.5), "int64", "does not hold"),
        (lambda: t.Date("when", indicator=True), "float32", "missing=0"),
        (lambda: t.Date("id"), "float32", "no date"),
        (lambda: t.Date("id", format="%Y"), "float32", "no text"),
    ],
)
def test_what_cannot_be_is_refused(date: Any, dtype: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,when\n1,2024-02-29\n")
    with pytest.raises(ValueError, match=said):
        wf.csv(tmp_path / "t.csv").stack([date()], dtype)
