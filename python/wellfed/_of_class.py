"""`of_class`: a static method that refuses to be called on an instance, whose data it would leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["of_class"]

if TYPE_CHECKING:
    of_class = staticmethod
else:

    class of_class(staticmethod):  # noqa: N801 (a decorator)
        """As `staticmethod`, but ``instance.method(...)`` is a TypeError when it is called."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """The function, or one that refuses to be called."""
            function = super().__get__(instance, owner)
            if instance is None:
                return function
            name = function.__name__

            def refuse(*_: Any, **__: Any) -> NoReturn:
                raise TypeError(
                    f"{name}() of a data set would leave this data set out: it mixes only those it is given"
                    f"\nhint: wf.{name}([this, ...]) mixes a list of data sets"
                )

            return refuse
