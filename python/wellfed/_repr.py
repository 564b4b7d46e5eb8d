"""Plans as they are written in Python, for `repr`."""

from __future__ import annotations

from typing import Any

from .transforms import Transform

__all__ = ["node_repr", "verb_repr"]


def node_repr(node: dict[str, Any]) -> list[str]:
    """A tree as it is written in Python, line by line."""
    if node["node"] == "source":
        stacks = [f"    {_stack_repr(stack)}" for stack in node["spec"].get("stacks", ())]
        return [_source_repr(node["spec"]), *stacks]
    if "input" in node:
        return [*node_repr(node["input"]), f"    {verb_repr(node)}"]
    name, lists = node["node"], node["node"] in ("interleave", "sample_from_datasets")
    lines = [f"{name}({'[' if lists else ''}"]
    for part in node["inputs"]:
        inner = node_repr(part)
        inner[-1] += ","
        lines += [f"    {line}" for line in inner]
    given = {k: v for k, v in node.items() if k not in ("node", "inputs")}
    if lists:
        return [*lines, f"], {', '.join(f'{k}={v!r}' for k, v in given.items())})"]
    return [*lines, ")"]


def bits(digits: str) -> int:
    """Ones in hexadecimal digits."""
    return int(digits or "0", 16).bit_count()


_CSV = {
    "delimiter": "field_delim",
    "quotes": "use_quote_delim",
    "header": "header",
    "names": "column_names",
    "select": "select_columns",
    "types": "column_defaults",
    "missing": "na_value",
    "look_at": "num_rows_for_inference",
    "compression": "compression_type",
}
"""Arguments of `csv` by what plans call them."""
_CSV_DEFAULTS = {
    "delimiter": ",",
    "quotes": True,
    "header": True,
    "missing": "",
    "look_at": 100,
    "compression": "auto",
}


def _source_repr(spec: dict[str, Any]) -> str:
    spec = dict(spec)
    kind = spec.pop("type")
    if kind == "tensor_slices":
        return (
            f"from_tensor_slices({', '.join('{name}: {dtype} {shape}'.format(**f) for f in spec['fields'])})"
        )
    if kind == "files":
        return f"image_files({spec['count']} paths{', labels' if spec['labels'] else ''})"
    if kind == "audio_files":
        given = [name for name in ("labels", "offsets", "durations", "texts") if spec[name]]
        paths = f"{spec['count']} paths"
        named = [f"{len(spec['classes'])} classes"] if spec.get("classes") else []
        return f"audio_files({', '.join([paths, *given, *named])})"
    if kind == "python":
        return f"from_dataset({spec['name']}, {spec['count']} samples)"
    if kind == "encoded":
        return f"encoded_images({spec['count']} images{', labels' if spec['labels'] else ''})"
    if kind == "table":
        kind, listed = spec.pop("format"), spec.pop("tuple", False)
        spec.pop("stacks", None)
        if listed:
            spec["fields"] = spec.pop("columns", None)
        urls = spec.pop("urls")
        csv = {
            _CSV[name]: value
            for name, value in spec.pop("csv", {}).items()
            if value != _CSV_DEFAULTS.get(name)
        }
        spec = {"paths": urls[0] if len(urls) == 1 else urls, **csv, **spec}
    if kind == "hdf5":
        pairs, listed = spec.pop("fields", None), spec.pop("tuple", False)
        if pairs is not None:
            spec["fields"] = [name for name, _ in pairs] if listed else dict(pairs)
    if kind == "tfrecord":
        for features in ("features", "sequence_features"):
            if features in spec:
                spec[features] = [feature["name"] for feature in spec[features]]
    first, *rest = spec.items()
    return f"{kind}({', '.join([repr(first[1]), *(f'{k}={v!r}' for k, v in rest)])})"


def _stack_repr(stack: dict[str, Any]) -> str:
    columns = ", ".join(repr(column["column"]) for column in stack["columns"])
    return f".stack([{columns}], {stack['dtype']!r}, name={stack['name']!r})"


def verb_repr(verb: dict[str, Any]) -> str:
    parameters = {k: v for k, v in verb.items() if k != "input"}
    match parameters.pop("node"):
        case "map":
            inner = [repr(Transform.from_plan(t)) for t in parameters["transforms"]]
            if parameters["field"] is not None:
                inner.append(f"field={parameters['field']!r}")
            return f".map({', '.join(inner)})"
        case "mix":
            return f".map({', '.join(repr(Transform.from_plan(t)) for t in parameters['transforms'])})"
        case "python_filter":
            kept = parameters["kept"]
            # Digits are of four answers each.
            count = "not computed yet" if kept is None else f"keeps {bits(kept[1])} of {kept[0]}"
            return f".filter({parameters['name']})  # {count}"
        case "python" if parameters["kind"] == "collate":
            return f"    collate_fn={parameters['name']}"
        case "python":
            field = "" if parameters["field"] is None else f", field={parameters['field']!r}"
            return f".map({parameters['name']}{field})"
        case "batch":
            dropping = ", drop_last=True" if parameters["drop_last"] else ""
            return f".batch({parameters['batch_size']}{dropping})"
        case "cache":
            given = [f"{k}={v!r}" for k, v in parameters.items() if v is not None and v != "coefficients"]
            return f".cache({', '.join(given)})"
        case "shuffle" if parameters["block_size"] is None:
            fixed = (
                "" if parameters.get("reshuffle_each_iteration", True) else ", reshuffle_each_iteration=False"
            )
            return f".shuffle(seed={parameters['seed']}{fixed})"
        case "take" | "skip" as name:
            return f".{name}({parameters['count']})"
        case name:
            return f".{name}({', '.join(f'{k}={v!r}' for k, v in parameters.items())})"
