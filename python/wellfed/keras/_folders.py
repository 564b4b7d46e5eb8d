"""The files in a folder, their labels and splits, as Keras finds them: what its functions of folders share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..exceptions import ConfigError
from ._own import has_tensorflow, own

__all__ = ["SETTLED", "Part", "checked", "found", "keras_own", "labels_dtype", "labels_fit"]

SETTLED = {"layout", "mode", "exif_orientation", "decode", "seed"}
"""Options of the engine that Keras' arguments settle."""


@dataclass(frozen=True)
class Part:
    """The files of one data set.

    Attributes:
        paths: Of the files, in Keras' order.
        labels: int64, one for each; None without labels.
        names: Of classes; None without labels.
        seed: Of the order; None: as listed.
    """

    paths: list[str]
    labels: Any
    names: list[str] | None
    seed: int | None


def labels_fit(labels: Any, label_mode: Any, class_names: Any) -> bool:
    """Whether Keras has no objection to arguments about labels."""
    listed = isinstance(labels, list | tuple)
    named = isinstance(labels, str) and labels == "inferred"
    return (
        (listed or labels is None or named)
        and not (listed and class_names)
        and label_mode in ("int", "categorical", "binary", None)
    )


def labels_dtype(labels: Any) -> str:
    """The dtype that TensorFlow gives to labels; empty for those that the engine does not have."""
    if not isinstance(labels, list | tuple):
        return "int32"
    if all(type(label) is int for label in labels):
        return "int32" if all(-(2**31) <= label < 2**31 for label in labels) else ""
    kinds = {getattr(label, "dtype", None) for label in labels}
    return next((name for name in ("int32", "int64") if kinds == {np.dtype(name)}), "")


def checked(given: dict[str, Any], options: dict[str, Any], function: Callable[..., Any], fits: bool) -> None:
    """Raises what Keras objects to, and options that are none here.

    Args:
        given: Keras' arguments by name.
        options: Those of the engine.
        function: Keras' own function, which raises its errors.
        fits: Whether it has no objection to those arguments that are particular to it.
    """
    settled = sorted(SETTLED & set(options))
    if settled:
        raise TypeError(f"{settled[0]} is settled by Keras' arguments, and is no option here")
    if not fits or not labels_fit(given["labels"], given["label_mode"], given["class_names"]):
        function(**given)
        raise ConfigError("arguments that are not known here, though Keras takes them")
    if given["format"] == "grain":
        raise ConfigError(
            'format="grain" is not known here, since it loads files in another way\n'
            'hint: format="tf" needs no TensorFlow here: on torch and JAX it gives what fit() takes'
        )
    names = ("validation_split", "subset", "shuffle", "seed")
    own("utils.dataset_utils", "check_validation_split_arg")(*(given[name] for name in names))


def found(
    given: dict[str, Any],
    formats: tuple[str, ...],
    what: str,
    ending: str,
    refused: Callable[[list[str]], Any],
) -> list[Part] | Any:
    """The files that belong to each data set: one, or two with ``subset="both"``.

    Args:
        given: Keras' arguments by name.
        formats: Ends of names.
        what: What Keras calls the files, where there are none.
        ending: What it adds to that.
        refused: Is given all paths; what it gives, if anything, is given back, before Keras prints more.
    """
    labels, label_mode, shuffle = given["labels"], given["label_mode"], given["shuffle"]
    if labels is None or label_mode is None:
        labels = label_mode = None
    seed = int(np.random.randint(1_000_000)) if given["seed"] is None else given["seed"]
    paths, of_paths, names = own("utils.dataset_utils", "index_directory")(
        given["directory"],
        # Shuffled in place.
        list(labels) if isinstance(labels, list | tuple) else labels,
        formats=formats,
        class_names=given["class_names"],
        shuffle=shuffle,
        seed=seed,
        follow_links=given["follow_links"],
        verbose=given["verbose"],
    )
    if label_mode == "binary" and len(names) != 2:
        raise ValueError(
            'When passing `label_mode="binary"`, there must be exactly 2 '
            f"class_names. Received: class_names={names}"
        )
    other = refused(paths)
    if other is not None:
        return other
    both = given["subset"] == "both"
    kinds = [("training", shuffle), ("validation", False)] if both else [(given["subset"], shuffle)]
    split = own("utils.dataset_utils", "get_training_or_validation_split")
    parts = []
    for kind, shuffled in kinds:
        mine, of_mine = split(paths, of_paths, given["validation_split"], kind)
        whole = None if label_mode is None else np.asarray(of_mine, np.int64)
        parts.append(Part(mine, whole, names, seed if shuffled else None))
    for (kind, _), part in zip(kinds, parts):
        if not part.paths:
            which = f"{kind} {what}" if both else what
            raise ValueError(f"No {which} found in directory {given['directory']}. {ending}")
    return parts


def keras_own(given: dict[str, Any], function: Callable[..., Any], why: str, hint: str) -> Any:
    """Keras' own data set, which says that it is.

    Raises:
        ConfigError: It needs TensorFlow, which is not installed.
    """
    if not has_tensorflow():
        raise ConfigError(
            f"{function.__name__}: {why}; Keras does this by TensorFlow, which is not installed\n"
            f"hint: install tensorflow, and it is left to Keras; or {hint}"
        )
    made = function(**given)
    for one in made if isinstance(made, list) else [made]:
        one.explain = lambda: f"all of it is Keras': {why}\n"
    return made
