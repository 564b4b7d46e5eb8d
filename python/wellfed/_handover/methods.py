"""`Frameworks`: the methods of `Dataset` that hand batches to TensorFlow, Keras and JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from .._options import Options
    from ..dataset import Dataset
    from .jax import JaxLoader
    from .tensorflow import TensorFlowDataset

__all__ = ["Frameworks"]


class Frameworks:
    """What other frameworks are given."""

    __slots__ = ()

    def tf(  # type: ignore[misc]
        self: Dataset,
        *,
        element_spec: Any = None,
        sparse: Sequence[str | int] = (),
        multiprocessing_context: Any = None,
        **options: Unpack[Options],
    ) -> TensorFlowDataset:
        """A `tf.data.Dataset` of tensors. They use the memory that the batch was made in, without a copy.

        Each iteration is the next epoch. Elements have the structure of the data set, with tuples in place of lists;
        ragged columns are `tf.RaggedTensor`s, text and bytes `tf.string`. The batch dimension is known where smaller
        last batches are left out.

        Its iterators can be saved by `tf.train.Checkpoint`, and go on to the bit; so can the data set itself. Its
        attribute ``loader`` is the `wellfed.Loader`, with `stats`, `errors` and `set_epoch`. Several iterators may be
        under way at once: those beside the first get a loader, and so workers and a budget, of their own.

        Args:
            element_spec: What elements are, as of `tf.data.Dataset.from_generator`. Only for pipelines with Python
                steps, of which otherwise the first element tells it.
            sparse: Columns that come as `tf.SparseTensor`, by the names that a data set is printed with, or by their
                places in a tuple (0 where an element is one array). Of columns that differ in length
                (`ragged_batch`, or single samples of such a field) every value is kept; of other arrays and of texts
                those that are zero, False or empty are left out, as by `tf.sparse.from_dense`.
            multiprocessing_context: As of `torch`.
            options: As of `with_options`.

        Raises:
            TypeError: Elements have JSON values, which are no tensors; a column in `sparse` is a single value, or comes
                with its lengths.
            ValueError: There is no column of a name in `sparse`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> data = wf.from_tensor_slices({"x": np.zeros((6, 2), np.float32), "y": np.arange(6)}).batch(3).tf()
            >>> data.element_spec["x"]
            TensorSpec(shape=(None, 2), dtype=tf.float32, name=None)
            >>> [batch["y"].numpy().tolist() for batch in data]
            [[0, 1, 2], [3, 4, 5]]
            >>> [int(x) for x in data.map(lambda batch: batch["y"][0])]
            [0, 3]
            >>> ragged = wf.from_tensor_slices([[7, 0], [], [5]]).ragged_batch(3).tf(sparse=[0])
            >>> next(iter(ragged)).indices.numpy().tolist()
            [[0, 0], [0, 1], [2, 0]]
        """
        from .tensorflow import make

        this = self.with_options(**options) if options else self
        _only_steps(this, multiprocessing_context)
        if element_spec is not None and not this._has_python():
            raise ValueError("element_spec is for pipelines with Python steps; of this one it is known")
        return make(this, element_spec, multiprocessing_context, lambda element: element, sparse=sparse)

    def keras(  # type: ignore[misc]
        self: Dataset,
        x: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        multiprocessing_context: Any = None,
        **options: Unpack[Options],
    ) -> Any:
        """What `fit`, `evaluate` and `predict` of Keras take, on the backend that Keras has.

        On TensorFlow it is as of `tf`; on torch and JAX a `keras.utils.PyDataset`. Every pass is the next epoch, and
        the loader works ahead across its end. Its attribute ``loader`` is the `wellfed.Loader`.

        Samples are ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``; of others ``x=`` and ``y=`` say which fields
        these are. Images are NHWC where Keras' ``image_data_format()`` is ``"channels_last"``, which it is by default,
        unless ``layout=`` says another. Dtypes are those of the pipeline.

        Args:
            x: What the model is called with: the name of a field, its place in a tuple, or a list of those, which
                makes a dict by name. None: what samples are.
            y: The targets, in the same way.
            sample_weight: The weights of samples, in the same way.
            multiprocessing_context: As of `torch`.
            options: As of `with_options`.

        Raises:
            ValueError: There is no such field, or samples have more than three parts.

        Example:
            >>> import keras
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices({"x": np.eye(8, dtype=np.float32), "y": np.arange(8) % 2}).shuffle(seed=0)
            >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
            >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            >>> history = model.fit(ds.batch(4).keras(x="x", y="y"), epochs=2, verbose=0)
            >>> len(history.history["loss"])
            2
        """
        from .keras import make, optioned

        _only_steps(self, multiprocessing_context)
        return make(optioned(self, **options), x, y, sample_weight, multiprocessing_context)

    def jax(  # type: ignore[misc]
        self: Dataset,
        sharding: Any = None,
        *,
        on_device: Literal["copy", "resize", "decode", "auto"] = "copy",
        multiprocessing_context: Any = None,
        **options: Unpack[Options],
    ) -> JaxLoader:
        """A loader of JAX arrays. On the CPU they use the memory that the batch was made in, without a copy.

        For another default device, or a sharding, batches are copied there one ahead. Its iterators have
        ``get_state()`` and ``set_state(state)``.

        JAX has no 64-bit numbers unless ``jax_enable_x64`` is set: int64 becomes int32, and it is an error if that
        changes a number; float64 becomes float32. Ragged columns are `wellfed.Ragged`, a pytree of values and offsets,
        whose sizes differ from batch to batch, so that `jax.jit` compiles anew: `padded_batch` is better there. Text
        and bytes stay lists.

        Args:
            sharding: A device; or a `jax.sharding.Sharding`, by which each process gives its part of global arrays: use
                `shard`, and leave smaller last batches out. Or a pytree of those, of the structure of batches.
            on_device: What of an image a CUDA device does, as of `torch`; the values are the same. For one device, the
                default one or that of the sharding. It needs no torch, and memory beside what JAX takes for itself
                when it starts (``XLA_PYTHON_CLIENT_MEM_FRACTION``).
            multiprocessing_context: As of `torch`.
            options: As of `with_options`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices({"x": np.zeros((6, 2), np.float32), "y": np.arange(6)}).batch(3)
            >>> for batch in ds.jax():
            ...     print(batch["x"].shape, batch["y"])
            (3, 2) [0 1 2]
            (3, 2) [3 4 5]

        Raises:
            ValueError: ``on_device`` is for CUDA devices and pipelines without Python steps, and this is none.
        """
        from .jax import make

        this = self.with_options(**options) if options else self
        _only_steps(this, multiprocessing_context)
        return make(this, sharding, multiprocessing_context, on_device)


def _only_steps(dataset: Dataset, context: Any) -> None:
    if context is not None and not dataset._has_python():
        raise ValueError("multiprocessing_context is for pipelines with Python steps; this one has none")
