"""The body of a map function: which of its tensors are known, operation by operation.

Invariant: what has no rule here is `Unknown`, and so is any use of a rule beyond what was compared with TensorFlow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tensorflow.python.framework import function_def_to_graph, op_def_registry
from tensorflow.python.framework.dtypes import as_dtype

from ._constants import array_of
from ._ranges import has_signed_zeros, within_bytes
from ._templates import found, templates
from ._values import Bytes, Const, Drawn, Image, Mode, Number, Sizes, Unknown, Value

__all__ = ["Body"]

_KERNELS = {
    "triangle": "bilinear",
    "keyscubic": "bicubic",
    "lanczos3": "lanczos3",
    "lanczos5": "lanczos5",
    "gaussian": "gaussian",
    "mitchellcubic": "mitchellcubic",
}
_RESIZES = {
    "ResizeBilinear": "bilinear",
    "ResizeBicubic": "bicubic",
    "ResizeNearestNeighbor": "nearest",
    "ResizeArea": "area",
}
_ARITHMETIC = {
    "Mul": "mul",
    "RealDiv": "div",
    "AddV2": "add",
    "Add": "add",
    "Sub": "sub",
    "Minimum": "minimum",
    "Maximum": "maximum",
}
# Their names, and their parameters.
_ADJUSTMENTS = {
    "AdjustContrastv2": ("contrast", "factor"),
    "AdjustSaturation": ("saturation", "factor"),
    "AdjustHue": ("hue", "delta"),
}
_SIGNED = "a bound of 0 for values of which some may be -0"
# Of constants: NumPy computes the same bits.
_FOLDED: dict[str, Callable[..., Any]] = {
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.true_divide,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Floor": np.floor,
    "FloorDiv": np.floor_divide,
}


class Body:
    """A function of the graph with values for its arguments.

    Args:
        function: A ``FunctionDef``.
        library: All functions by name.
        arguments: What is known of the arguments.
        random: Whether random operations may be drawn by the engine.

    Raises:
        ValueError: It calls what TensorFlow does not know as an operation.
    """

    def __init__(
        self, function: Any, library: dict[str, Any], arguments: Sequence[Value], random: bool
    ) -> None:
        self.function = function
        self._library = library
        self._random = random
        try:
            self.graph, names = function_def_to_graph.function_def_to_graph_def(function)
        except RuntimeError as error:
            # A `Defun` of TensorFlow 1 is called as an operation, which is none outside of its graph.
            raise ValueError(f"a map function: {str(error).partition(' in binary')[0]}") from error
        self.nodes = {node.name: node for node in self.graph.node}
        signature = function.signature
        self.arguments = [argument.name for argument in signature.input_arg]
        self.outputs = [_named(names[function.ret[output.name]]) for output in signature.output_arg]
        self._known: dict[str, Value] = {
            f"{name}:0": value for name, value in zip(self.arguments, arguments, strict=False)
        }
        # Operations that were done before this function, which TensorFlow does not optimize together with its own.
        self._before = max((len(value.ops) for value in arguments if isinstance(value, Image)), default=0)
        inputs = [name for node in self.graph.node for name in node.input if not name.startswith("^")]
        self._uses = Counter(map(_named, [*inputs, *self.outputs]))

    def value(self, tensor: str) -> Value:
        """What is known of a tensor."""
        tensor = _named(tensor)
        if tensor not in self._known:
            name, _, index = tensor.partition(":")
            node = self.nodes[name]
            value = self._make(node, int(index))
            called = self._called(node, tensor) if isinstance(value, Unknown) else None
            self._known[tensor] = value if called is None else called
        return self._known[tensor]

    @property
    def stateless(self) -> bool:
        """Whether no operation of it has a state, so that it gives the same for the same arguments."""
        functions, seen = [self.function], set()
        while functions:
            for node in functions.pop().node_def:
                definition = op_def_registry.get(node.op)
                if (definition is None or definition.is_stateful) and node.op not in (
                    "Assert",
                    "If",
                    "While",
                ):
                    return False
                called = [attr.func.name for attr in node.attr.values() if attr.HasField("func")]
                called += [func.name for attr in node.attr.values() for func in attr.list.func]
                for name in called:
                    if name not in self._library:
                        return False
                    if name not in seen:
                        seen.add(name)
                        functions.append(self._library[name])
        return True

    def results(self) -> list[Value]:
        """What is known of the outputs."""
        return [self.value(name) for name in self.outputs]

    def _called(self, node: Any, tensor: str) -> Value | None:
        """What a function of ``tf.image`` gives that makes many operations, if it gives `tensor`."""
        wanted = [template for template in templates() if template.root == node.op]
        if not wanted:
            return None
        kinds, images = self._below(tensor)
        # Anything else below it is no such call.
        if len(images) != 1:
            return None
        ((name, image),) = images.items()
        channels = dict.fromkeys([image.channels, None])
        for template in wanted:
            if template.has is not None and template.has not in kinds:
                continue
            sizes = dict.fromkeys([image.size if template.sized else None, None])
            for shape in [(*(size or (None, None)), count) for size in sizes for count in channels]:
                call = found(template, self.nodes, tensor, image.dtype, shape)
                op = None if call is None else template.op(call.parameters)
                if call is None or op is None or call.image != name:
                    continue
                if template.random and not self._random:
                    return Unknown(
                        f"a {op['op']}, whose random numbers are TensorFlow's (random='native' draws others)"
                    )
                return _after(image, op)
        return None

    def _below(self, tensor: str) -> tuple[set[str], dict[str, Image]]:
        """The kinds of nodes that give a tensor, down to images that are known, and those."""
        kinds: set[str] = set()
        images: dict[str, Image] = {}
        seen: set[str] = set()
        todo = [tensor]
        while todo:
            name = _named(todo.pop())
            node = self.nodes[name.partition(":")[0]]
            value = self._known.get(name)
            if isinstance(value, Image) and not value.batched and node.op != "Identity":
                images[name] = value
            elif name not in seen:
                seen.add(name)
                kinds.add(node.op)
                todo += [before for before in node.input if before[0] != "^"]
        return kinds, images

    def _make(self, node: Any, index: int) -> Value:
        rule: Callable[[Any, list[Value]], Value] | None = getattr(self, f"_op_{node.op}", None)
        inputs = [name for name in node.input if not name.startswith("^")]
        values = [self.value(name) for name in inputs]
        if node.op == "ParseExampleV2":
            return _feature(node, index, values)
        constants = [np.asarray(value.array) for value in values if isinstance(value, Const)]
        if node.op in _FOLDED and len(constants) == len(values):
            return _folded(node, constants)
        if rule is None:
            if node.op in _RESIZES:
                return _resize(node, values, _RESIZES[node.op])
            if any(isinstance(value, Drawn) for value in values):
                return self._with_draw(node, values)
            if node.op in _ARITHMETIC:
                return _arithmetic(node, values, _ARITHMETIC[node.op], self._before)
            return _adjusted(node, values) if node.op in _ADJUSTMENTS else _unknown(node)
        return rule(node, values)

    def _op_RandomUniform(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Const(shape)] if np.size(shape) == 0 and _type(node, "dtype") == "float32":
                return self._once(node, Drawn(0.0, 1.0))
        return _unknown(node)

    def _once(self, node: Any, drawn: Drawn) -> Value:
        """`drawn`, if one operation takes it: all that take a number of TensorFlow's take the same."""
        return drawn if self._uses[_named(node.name)] == 1 else _unknown(node)

    def _with_draw(self, node: Any, values: list[Value]) -> Value:
        """What an operation makes of a number that is drawn: another one, or an image that is adjusted by it."""
        match values:
            case [Drawn(low, high), Const(array)] if np.shape(array) == () and node.op in ("Mul", "AddV2"):
                by = np.float32(array)
                low, high = np.float32(low), np.float32(high)
                ends = [low * by, high * by] if node.op == "Mul" else [low + by, high + by]
                return self._once(node, Drawn(float(min(ends)), float(max(ends))))
            case [Image(batched=False, dtype="float32") as image, Drawn(low, high)]:
                pass
            case _:
                return _unknown(node)
        name = {"AddV2": "brightness"}.get(node.op) or _ADJUSTMENTS.get(node.op, ("", ""))[0]
        op: dict[str, Any] = {"op": f"random_{name}", "lower": low, "upper": high}
        if name in ("brightness", "hue"):
            op = {"op": f"random_{name}", "max_delta": high}
        fits = low == -high if "max_delta" in op else low >= 0
        if not name or not fits or not np.isfinite(high) or (name == "hue" and high > 0.5):
            return _unknown(node)
        if name in ("hue", "saturation") and image.channels != 3:
            return _unknown(node)
        if not self._random:
            return Unknown(
                f"a {op['op']}, whose random numbers are TensorFlow's (random='native' draws others)"
            )
        return image.then(op)

    def _op_ClipByValue(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image(dtype="float32") as image, Const(low), Const(high)]:
                ends = [np.asarray(low), np.asarray(high)]
                scalars = all(end.shape == () and end.dtype == np.float32 for end in ends)
                if _zeros_clash(image, ends):
                    return Unknown(_SIGNED)
                if scalars and np.all(np.isfinite(ends)) and ends[0] <= ends[1]:
                    for operator, end in (("minimum", ends[1]), ("maximum", ends[0])):
                        op = {"op": "arithmetic", "operator": operator, "constants": [float(end)]}
                        image = image.then(op)
                    return image
        return _unknown(node)

    def _op_Pow(self, node: Any, _: list[Value]) -> Value:
        return Unknown(
            f"a power ({node.name}), whose bits depend on the place of a value in a vector register"
        )

    def _op_Const(self, node: Any, _: list[Value]) -> Value:
        return Const(array_of(node))

    def _op_Identity(self, node: Any, values: list[Value]) -> Value:
        return self._once(node, values[0]) if isinstance(values[0], Drawn) else values[0]

    def _op_Reshape(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Const(array), Const(shape)]:
                return Const(np.reshape(array, tuple(int(side) for side in shape)))
        return _unknown(node)

    def _op_Pack(self, node: Any, values: list[Value]) -> Value:
        arrays = [np.asarray(value.array) for value in values if isinstance(value, Const)]
        if len(arrays) == len(values) and node.attr["axis"].i == 0:
            return Const(np.stack(arrays))
        return _unknown(node)

    def _op_ReadFile(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Bytes(key, False)]:
                return Bytes(key, True)
        return _unknown(node)

    def _op_DecodeJpeg(self, node: Any, values: list[Value]) -> Value:
        attr = node.attr
        if (
            attr["ratio"].i != 1
            or not attr["fancy_upscaling"].b
            or attr["try_recover_truncated"].b
            or attr["acceptable_fraction"].f != 1.0
            or attr["dct_method"].s not in (b"", b"INTEGER_FAST", b"INTEGER_ACCURATE")
        ):
            return Unknown("DecodeJpeg with other options than its defaults")
        if attr["dct_method"].s == b"INTEGER_ACCURATE":
            return _decoded(node, values, {3: "TENSORFLOW_ACCURATE"})
        return _decoded(node, values)

    def _op_DecodePng(self, node: Any, values: list[Value]) -> Value:
        return _decoded(node, values) if _type(node, "dtype") == "uint8" else _unknown(node)

    def _op_DecodeImage(self, node: Any, values: list[Value]) -> Value:
        return _decoded(node, values) if _type(node, "dtype") == "uint8" else _unknown(node)

    def _op_Cast(self, node: Any, values: list[Value]) -> Value:
        to = _type(node, "DstT")
        match values:
            case [Const(array)] if to in ("float32", "int32", "int64"):
                return Const(np.asarray(array).astype(to))
            case [value] if to == _type(node, "SrcT"):
                return value
            case [Image(dtype="uint8") as image] if to == "float32":
                return image.then({"op": "cast", "dtype": "float32"}, dtype="float32")
            case [Image(dtype="float32") as image] if to == "uint8":
                if within_bytes(image):
                    return image.then({"op": "cast", "dtype": "uint8"}, dtype="uint8")
                return Unknown("a cast to uint8 of values that may lie beyond 0 to 255")
            case [Number(dtype=before) as number] if _casts(before, to):
                return replace(number, dtype=np.dtype(to), ops=(*number.ops, ("cast", to)))
            case [Sizes(what="sides") as sizes] if to == "float32":
                return replace(sizes, what="float sides")
        return _unknown(node)

    def _op_ExpandDims(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image(batched=False) as image, Const(axis)] if int(axis) in (0, -4):
                return replace(image, batched=True)
            case [Number() as number, Const(axis)]:
                rank = len(number.shape)
                at = int(axis) if int(axis) >= 0 else int(axis) + rank + 1
                if 0 <= at <= rank:
                    shape = (*number.shape[:at], 1, *number.shape[at:])
                    return replace(number, shape=shape, ops=(*number.ops, ("expand", at + 1)))
        return _unknown(node)

    def _op_Squeeze(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image(batched=True) as image] if list(node.attr["squeeze_dims"].list.i) == [0]:
                return replace(image, batched=False)
        return _unknown(node)

    def _op_Shape(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image(batched=True) as image]:
                return Sizes(image, "shape")
        return _unknown(node)

    def _op_StridedSlice(self, node: Any, values: list[Value]) -> Value:
        attr = node.attr
        masks = [attr[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
        match values:
            case [Sizes(what="shape") as sizes, Const(begin), Const(end), Const(strides)]:
                if not any(masks) and (list(begin), list(end), list(strides)) == ([1], [3], [1]):
                    return replace(sizes, what="sides")
                if masks == [0, 0, 0, 0, 1] and sizes.image.size is not None:
                    side = [1, *sizes.image.size, sizes.image.channels][int(begin[0])]
                    if side is not None:
                        return Const(np.int32(side))
            case [Image(batched=False) as image, Const(begin), Const(end), Const(strides)]:
                if not any(masks[2:]) and all(step == 1 for step in strides):
                    return _sliced(node, image, begin, end, masks[0], masks[1])
            case [Const(array), Const(begin), Const(end), Const(strides)]:
                if masks == [0, 0, 0, 0, 1] and np.ndim(array) == 1:
                    return Const(np.asarray(array)[int(begin[0])])
                if masks == [0, 0, 0, 0, 0] and np.ndim(array) == 1 and list(strides) == [1]:
                    return Const(np.asarray(array)[int(begin[0]) : int(end[0])])
        return _unknown(node)

    def _op_ScaleAndTranslate(self, node: Any, values: list[Value]) -> Value:
        kernel = _KERNELS.get(node.attr["kernel_type"].s.decode())
        match values:
            case [
                Image(batched=True) as image,
                Const(size),
                (Sizes(what="scale") | Const()) as scale,
                Const(moved),
            ] if kernel is not None and not np.any(moved):
                whole = (int(size[0]), int(size[1]))
                if _is_scale(scale, image, whole):
                    op: dict[str, Any] = {"op": "resize", "method": kernel, "size": list(whole)}
                    op["antialias"] = bool(node.attr["antialias"].b)
                    return image.then(op, size=whole, dtype="float32")
        return _unknown(node)

    def _op_Slice(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image() as image, Const(begin), Const(size)] if image.size is not None:
                front = 1 if image.batched else 0
                (height, width), channels = image.size, image.channels
                starts, counts = [int(x) for x in begin], [int(x) for x in size]
                if starts[-1] != 0 or counts[-1] not in (-1, channels):
                    return _unknown(node)
                if front and (starts[0] != 0 or counts[0] not in (-1, 1)):
                    return _unknown(node)
                (top, left), (rows, columns) = starts[front:-1], counts[front:-1]
                rows = height - top if rows == -1 else rows
                columns = width - left if columns == -1 else columns
                inside = top >= 0 and left >= 0 and top + rows <= height and left + columns <= width
                if inside and rows > 0 and columns > 0:
                    op = {"op": "crop", "top": top, "left": left, "height": rows, "width": columns}
                    return image.then(op, size=(rows, columns))
        return _unknown(node)

    def _op_Pad(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image() as image, Const(given)] if image.size is not None:
                borders = np.asarray(given).tolist()
                (top, bottom), (left, right) = borders[1:3] if image.batched else borders[:2]
                others = [borders[0], borders[3]] if image.batched else [borders[2]]
                if not any(map(any, others)) and min(top, bottom, left, right) >= 0:
                    height, width = image.size[0] + top + bottom, image.size[1] + left + right
                    op = {"op": "pad", "top": top, "left": left, "height": height, "width": width}
                    return image.then(op, size=(height, width))
        return _unknown(node)

    def _op_ReverseV2(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Image() as image, Const(axes)]:
                rank = 4 if image.batched else 3
                found = [int(axis) % rank - (rank - 3) for axis in np.reshape(axes, -1)]
                if set(found) <= {0, 1}:
                    return image.then({"op": "flip", "horizontal": 1 in found, "vertical": 0 in found})
        return _unknown(node)

    def _op_OneHot(self, node: Any, values: list[Value]) -> Value:
        match values:
            case [Number() as number, Const(depth), Const(on), Const(off)]:
                if node.attr["axis"].i == -1 and number.dtype.kind in "iu" and int(depth) >= 0:
                    hot = (int(depth), np.asarray(on)[()], np.asarray(off)[()])
                    return replace(
                        number,
                        dtype=np.asarray(on).dtype,
                        shape=(*number.shape, int(depth)),
                        ops=(*number.ops, ("one_hot", hot)),
                    )
        return _unknown(node)

    def _op_StatelessIf(self, node: Any, values: list[Value]) -> Value:
        flip = self._flip(node, values)
        if flip is None:
            return _unknown(node)
        if not self._random:
            return Unknown(
                "a random flip, whose random numbers are TensorFlow's (random='native' draws others)"
            )
        return flip

    _op_If = _op_StatelessIf

    def _flip(self, node: Any, values: list[Value]) -> Value | None:
        """The image of ``tf.image.random_flip_*``, mirrored where a draw of [0, 1) is less than a half; else None."""
        match values[1:]:
            case [Image(batched=False) as image]:
                pass
            case _:
                return None
        less = self.nodes[node.input[0].partition(":")[0]]
        if less.op != "Less" or not self._is(less.input[1], 0.5):
            return None
        draw = self.nodes[less.input[0].partition(":")[0]]
        if draw.op == "Mul" and self._is(draw.input[1], 1.0):
            draw = self.nodes[draw.input[0].partition(":")[0]]
        if draw.op != "RandomUniform" or np.size(getattr(self.value(draw.input[0]), "array", [1])) != 0:
            return None
        branches = []
        for name in ("then_branch", "else_branch"):
            function = self._library.get(node.attr[name].func.name)
            if function is None:
                return None
            results = Body(function, self._library, [replace(image, ops=())], self._random).results()
            branches.append(results)
        match branches:
            case [[Image(ops=({"op": "flip"} as flip,))], [Image(ops=())]]:
                return image.then({**flip, "op": "random_flip"})
        return None

    def _is(self, tensor: str, number: float) -> bool:
        value = self.value(tensor)
        return isinstance(value, Const) and np.ndim(value.array) == 0 and float(value.array) == number


def _adjusted(node: Any, values: list[Value]) -> Value:
    """An image of float32 whose colours are adjusted by a constant."""
    name, parameter = _ADJUSTMENTS[node.op]
    match values:
        case [Image(dtype="float32", batched=False) as image, Const(array)] if np.shape(array) == ():
            by = float(np.float32(array))
            fits = abs(by) <= 1 if name == "hue" else np.isfinite(by)
            if fits and (name == "contrast" or image.channels == 3):
                return image.then({"op": f"adjust_{name}", parameter: by})
    return _unknown(node)


def _after(image: Image, op: dict[str, Any]) -> Image | None:
    """`image` after an operation of `templates`; None if it is not for such an image."""
    match op["op"], image.channels:
        case "grayscale", channels:
            return image.then(op, channels=1) if channels == 3 and image.dtype == "float32" else None
        case "to_rgb", channels:
            return image.then(op, channels=3) if channels == 1 else None
        case "standardize", _:
            if image.dtype != "float32":
                image = image.then({"op": "cast", "dtype": "float32"}, dtype="float32")
            return image.then(op)
    if op["op"] != "central_crop":
        whole = (op["height"], op["width"]) if "height" in op else (op["size"][0], op["size"][1])
        floats = op["op"] == "resize_with_pad" and op["method"] != "nearest"
        return image.then(op, size=whole, dtype="float32" if floats else image.dtype)
    if image.size is None:
        return image.then(op)
    starts = [int((float(side) - float(side) * op["fraction"]) / 2) for side in image.size]
    (height, width), (top, left) = image.size, starts
    return image.then(op, size=(height - 2 * top, width - 2 * left))


def _named(tensor: str) -> str:
    return tensor if ":" in tensor else f"{tensor}:0"


def _unknown(node: Any) -> Unknown:
    return Unknown(f"{node.op} ({node.name})")


def _is_scale(scale: Sizes | Const, image: Image, size: tuple[int, int]) -> bool:
    """Whether these are the numbers by which the sides of `image` are multiplied to get `size`."""
    if isinstance(scale, Sizes):
        return scale.size == size and scale.image == image
    if image.size is None:
        return False
    sides = np.divide(np.asarray(size, np.float32), np.asarray(image.size, np.float32))
    return np.array_equal(scale.array, sides) and np.asarray(scale.array).dtype == np.float32


def _folded(node: Any, constants: list[Any]) -> Value:
    if any(array.dtype.kind not in "if" for array in constants):
        return _unknown(node)
    with np.errstate(all="ignore"):
        result = np.asarray(_FOLDED[node.op](*constants))
    # What is divided by nothing is an error, or depends on the kernel.
    fine = result.dtype == constants[0].dtype and bool(np.all(np.isfinite(result)))
    return Const(result) if fine else _unknown(node)


def _type(node: Any, attribute: str) -> str:
    return str(as_dtype(node.attr[attribute].type).name)


def _casts(before: np.dtype[Any], to: str) -> bool:
    """Whether NumPy casts as TensorFlow does, for all values."""
    whole = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    return before.name in whole and to in whole | {"float32", "float64"}


_MODES: dict[int, Mode] = {3: "TENSORFLOW", 0: "TENSORFLOW_UNCHANGED", 1: "TENSORFLOW_L"}


def _decoded(node: Any, values: list[Value], modes: dict[int, Mode] = _MODES) -> Value:
    channels = node.attr["channels"].i
    match values:
        case [Bytes(key, True)] if channels in modes:
            return Image(key, modes[channels], channels or None)
    if channels not in modes:
        return Unknown(f"{node.op} with channels={channels}")
    return _unknown(node)


def _resize(node: Any, values: list[Value], method: str) -> Value:
    attr = node.attr
    half = method == "area" or attr["half_pixel_centers"].b
    match values:
        case [Image(batched=True) as image, Const(size)] if half and not attr["align_corners"].b:
            whole = (int(size[0]), int(size[1]))
            op = {"op": "resize", "method": method, "size": list(whole)}
            return image.then(op, size=whole, dtype=image.dtype if method == "nearest" else "float32")
    return _unknown(node)


def _arithmetic(node: Any, values: list[Value], operator: str, done: int) -> Value:
    """An operation with a constant; the first `done` operations of an image are not of this function."""
    match values:
        case [Const(size), Sizes(what="float sides") as sizes] if operator == "div":
            if np.shape(size) == (2,) and all(float(side).is_integer() for side in size):
                return replace(sizes, what="scale", size=(int(size[0]), int(size[1])))
            return _unknown(node)
        case [Image(dtype="float32") as image, Const(array)]:
            pass
        case [Const(array), Image(dtype="float32") as image] if operator != "div":
            operator = "sub_from" if operator == "sub" else operator
        case _:
            return _unknown(node)
    constants = np.asarray(array)
    channels = image.channels or 1
    if constants.dtype != np.float32 or not np.all(np.isfinite(constants)):
        return _unknown(node)
    if constants.size != 1 and constants.shape != (channels,):
        return _unknown(node)
    if constants.ndim > (4 if image.batched else 3):
        return _unknown(node)
    if operator in ("minimum", "maximum") and _zeros_clash(image, [constants]):
        return Unknown(_SIGNED)
    last = image.ops[-1] if len(image.ops) > done else {}
    if last.get("operator") == operator and operator in ("add", "mul"):
        # TensorFlow's constant folding makes one operation of both.
        before = np.float32(last["constants"][0])
        if constants.size != 1 or len(last["constants"]) != 1:
            return Unknown(f"{node.op} after {node.op} with constants of several channels")
        both = before * constants.reshape(()) if operator == "mul" else before + constants.reshape(())
        if not np.isfinite(both):
            return _unknown(node)
        return replace(image, ops=(*image.ops[:-1], {**last, "constants": [float(both)]}))
    listed = [float(x) for x in constants.reshape(-1)]
    return image.then({"op": "arithmetic", "operator": operator, "constants": listed})


def _zeros_clash(image: Image, bounds: list[Any]) -> bool:
    """Whether one of two zeros of different signs may have to be chosen."""
    zeros = [bound[bound == 0] for bound in bounds]
    return any(np.any(np.signbit(zero)) for zero in zeros) or (
        any(np.size(zero) for zero in zeros) and has_signed_zeros(image)
    )


def _sliced(node: Any, image: Image, begin: Any, end: Any, no_begin: int, no_end: int) -> Value:
    """A part of an image whose size is known."""
    if image.size is None or len(begin) > 3:
        return _unknown(node)
    sides: list[int | None] = [*image.size, image.channels]
    spans: list[tuple[int, Any]] = [(0, side) for side in sides]
    for axis in range(len(begin)):
        side = sides[axis]
        if side is None:
            if not (no_begin >> axis & 1 and no_end >> axis & 1):
                return _unknown(node)
            continue
        first = None if no_begin >> axis & 1 else int(begin[axis])
        last = None if no_end >> axis & 1 else int(end[axis])
        first, last, _ = slice(first, last).indices(side)
        spans[axis] = (first, last)
    (top, bottom), (left, right), channels = spans
    if channels != (0, sides[2]) or bottom <= top or right <= left:
        return _unknown(node)
    op = {"op": "crop", "top": top, "left": left, "height": bottom - top, "width": right - left}
    return image.then(op, size=(bottom - top, right - left))


def _feature(node: Any, index: int, values: list[Value]) -> Value:
    """An output of ``ParseExampleV2`` on one record: a dense feature."""
    match values:
        case [Bytes("record"), Const(), Const(sparse), Const(dense), Const(ragged), *defaults]:
            pass
        case _:
            return _unknown(node)
    if len(sparse) or len(ragged) or index >= len(dense) or node.attr["num_sparse"].i:
        return Unknown("ParseExampleV2 with sparse or ragged features")
    name = dense[index].decode()
    dtype = as_dtype(node.attr["Tdense"].list.type[index]).name
    shape = tuple(dim.size for dim in node.attr["dense_shapes"].list.shape[index].dim)
    default = defaults[index]
    given = default.array if isinstance(default, Const) else None
    if given is None or any(side < 0 for side in shape):
        return Unknown(f"feature {name} of a form that is not FixedLenFeature")
    needed = np.size(given) == 0 and np.prod(shape, dtype=int) > 0
    key = ("feature", name, dtype, shape, None if needed else given.tobytes() if dtype != "string" else given)
    if dtype == "string":
        return Bytes(key, True) if shape == () and needed else Unknown(f"feature {name} of several strings")
    return Number(key, np.dtype(dtype), shape)
