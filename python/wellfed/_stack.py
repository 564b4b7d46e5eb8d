"""`Dataset.stack`: columns of a table as one field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _arguments as check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .dataset import Dataset
    from .tables import Column

__all__ = ["Stacks"]


class Stacks:
    """What can be stacked."""

    __slots__ = ()

    def stack(  # type: ignore[misc]
        self: Dataset, columns: Sequence[str | Column], dtype: str = "float32", *, name: str = "features"
    ) -> Dataset:
        """Columns of a table as one field: an array of numbers a row, which takes their place in the sample.

        It is made once for each group of rows that is decoded, so a batch copies one run of bytes a row, and not one
        for each column. Stands right behind `csv`, `parquet` or `arrow`, before everything that looks at samples.

        Args:
            columns: In order: names of columns of numbers, which are taken as they are, and `tables.Number`,
                `tables.Category`, `tables.Hashing` and `tables.Date`, which say how a column becomes numbers.
            dtype: ``float32``, ``float64``, ``int32`` or ``int64``. Whole numbers that float32 cannot hold are rounded
                as NumPy rounds them; into whole numbers only whole numbers go, and what does not fit is a bad sample.
            name: The field's. Samples with ``fields`` (tuples) have it at their end.

        Raises:
            ValueError: A column is not there, is stacked twice, or does not fit its encoding; the name is taken; the
                source is no table; or another verb than those of order (`shuffle`, `take`) comes before it.

        Example:
            >>> import pathlib, tempfile
            >>> import wellfed as wf
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
            >>> _ = path.write_text(chr(10).join(["a,b,y", "1,2,0", "3,4,1"]))
            >>> ds = wf.csv(path, label_name="y").stack(["a", "b"])
            >>> next(iter(ds.batch(2).numpy()))[0]["features"]
            array([[1., 2.],
                   [3., 4.]], dtype=float32)
        """
        from .tables import Category, Date, Hashing, Number

        if isinstance(columns, str) or not check.is_sequence(columns):
            raise TypeError(f"columns is {columns!r}; it must be a list of names and encodings of columns")
        for column in columns:
            if not isinstance(column, str | Number | Category | Hashing | Date):
                raise TypeError(
                    f"columns has {column!r}; each must be a name, or a Number, Category, Hashing or Date of "
                    "wellfed.tables"
                )
        stacked = [
            {"column": column}
            if isinstance(column, str)
            else {"column": column.column, "encoding": column.to_plan()}
            for column in columns
        ]
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is {name!r}; it must be the name of a field")
        text = check.to_json({"name": name, "dtype": check.stack_dtype(dtype), "columns": stacked})
        return self._with(self._native.stack(text))
