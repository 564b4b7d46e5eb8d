"""Verbs that make batches of samples: stacked, padded, one after the other, and cut by how long samples are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import _arguments as check
from . import _columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .dataset import Dataset

__all__ = ["Batches"]


class Batches:
    """How samples become batches."""

    __slots__ = ()

    def batch(  # type: ignore[misc]
        self: Dataset,
        batch_size: int,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> Dataset:
        """Stacks samples.

        Args:
            batch_size: Samples in a batch, at least 1.
            drop_last: Leave out a last batch that is smaller.
            collate_fn: Makes a batch of a list of samples, in Python; None stacks them.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> len(wf.from_tensor_slices(np.arange(10)).batch(4, drop_last=True))
            2
        """
        size = check.whole(batch_size, "batch_size", 1)
        batches = self._verb("batch", batch_size=size, drop_last=bool(drop_last))
        if collate_fn is None:
            return batches
        if not callable(collate_fn):
            raise TypeError(f"collate_fn is {collate_fn!r}, which cannot be called")
        return batches._python("collate", collate_fn)

    def padded_batch(  # type: ignore[misc]
        self: Dataset,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        multiple_of: int | None = None,
        drop_last: bool = False,
        *,
        lengths: bool = False,
        mask: bool = False,
    ) -> Dataset:
        """Stacks samples whose arrays differ in size, each filled up at its ends.

        Args:
            batch_size: Samples in a batch, at least 1.
            padded_shapes: A shape for each field, in the structure of the samples, such as ``[None]`` or ``[100]``. A
                side that is None is that of the largest array of the batch; so is every side that varies without it.
            padding_values: What arrays are filled up with: one number for all, or one for each field, in the structure
                of the samples. Default: 0, of the field's dtype.
            multiple_of: Sides that are left to the batch are rounded up to a multiple of this.
            drop_last: Leave out a last batch that is smaller.
            lengths: In place of a field that varies, give ``(values, lengths)``: lengths before padding, int64
                ``[batch]``; of sounds, along time.
            mask: In place of a field that varies, give ``(values, mask)``, or ``(values, lengths, mask)``: bool
                ``[batch, length]``, True where a sample has something and False where it is filled up, along the side
                of lengths. What Hugging Face's models call ``attention_mask`` is ``mask.astype("int32")``. A field
                that does not vary, such as after `transforms.PadOrTrim`, has none.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices([[1, 2], [3], [4, 5, 6]])
            >>> next(iter(ds.padded_batch(2, padding_values=-1).numpy())).tolist()
            [[1, 2], [3, -1]]
        """
        return self._verb(
            "padded_batch",
            batch_size=check.whole(batch_size, "batch_size", 1),
            drop_last=bool(drop_last),
            pad=_pad(self, padded_shapes, padding_values, multiple_of, lengths, mask),
        )

    def ragged_batch(  # type: ignore[misc]
        self: Dataset, batch_size: int, drop_last: bool = False
    ) -> Dataset:
        """Puts arrays that differ in length one after the other: batches have a `wellfed.Ragged` for such a field.

        Args:
            batch_size: Samples in a batch, at least 1.
            drop_last: Leave out a last batch that is smaller.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices([[1, 2], [3], [4, 5, 6]])
            >>> batch = next(iter(ds.ragged_batch(3).numpy()))
            >>> batch.values.tolist(), batch.offsets.tolist()
            ([1, 2, 3, 4, 5, 6], [0, 2, 3, 6])
        """
        size = check.whole(batch_size, "batch_size", 1)
        return self._verb("ragged_batch", batch_size=size, drop_last=bool(drop_last))

    def bucket_by_sequence_length(  # type: ignore[misc]
        self: Dataset,
        field: str | int | None,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        *,
        multiple_of: int | None = None,
        lengths: bool = False,
        mask: bool = False,
    ) -> Dataset:
        """Batches of samples of similar length, as tf.data makes them.

        Samples go to the bucket of their length in the order of the epoch. A full bucket is a batch; at the end of the
        epoch, what is left in buckets makes smaller batches. Put `shuffle` before it, and `shard` after it.

        Args:
            field: The field whose length counts: its name, or its place in a tuple. None if only one differs in
                length. The source must know lengths before samples are read, as arrays in memory do.
            bucket_boundaries: Lengths from which on the next bucket begins.
            bucket_batch_sizes: Samples in a batch of each bucket: one more number than there are boundaries.
            padded_shapes: As of `padded_batch`.
            padding_values: As of `padded_batch`.
            pad_to_bucket_boundary: Pad to one less than the boundary of the bucket. A sample beyond the last boundary
                is then a bad sample.
            no_padding: Put arrays one after the other, as `ragged_batch` does.
            drop_remainder: Leave out the smaller batches at the end of an epoch.
            multiple_of: As of `padded_batch`.
            lengths: As of `padded_batch`.
            mask: As of `padded_batch`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices([np.arange(n) for n in (1, 7, 2, 9, 3)])
            >>> [batch.shape for batch in ds.bucket_by_sequence_length(None, [5], [2, 2]).numpy()]
            [(2, 2), (2, 9), (1, 3)]
        """
        return self._verb(
            "bucket_by_sequence_length",
            field=_columns.field_name(field),
            bucket_boundaries=_columns.wholes(bucket_boundaries, "bucket_boundaries"),
            bucket_batch_sizes=_columns.wholes(bucket_batch_sizes, "bucket_batch_sizes"),
            drop_remainder=bool(drop_remainder),
            pad_to_bucket_boundary=bool(pad_to_bucket_boundary),
            no_padding=bool(no_padding),
            pad=_pad(self, padded_shapes, padding_values, multiple_of, lengths, mask),
        )

    def batch_by_tokens(  # type: ignore[misc]
        self: Dataset,
        max_tokens: int,
        field: str | int | None = None,
        *,
        bucket_boundaries: Sequence[int] = (),
        padding_values: Any = None,
        multiple_of: int | None = None,
        drop_last: bool = False,
        lengths: bool = False,
        mask: bool = False,
    ) -> Dataset:
        """Batches of as many samples as have at most ``max_tokens`` tokens, padding included.

        Samples are taken in the order of the epoch; a batch ends before the next sample would make it too large. Put
        `shuffle` before it, and `shard` after it. A sample that is too long by itself is a bad sample.

        Args:
            max_tokens: The longest length of the batch times its number of samples, at most.
            field: As of `bucket_by_sequence_length`.
            bucket_boundaries: Lengths from which on the next bucket begins: with them, samples of similar length share
                a batch, and there is less padding.
            padding_values: As of `padded_batch`.
            multiple_of: As of `padded_batch`. The rounded length is what counts.
            drop_last: Leave out the batches that are not full at the end of an epoch.
            lengths: As of `padded_batch`.
            mask: As of `padded_batch`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices([np.arange(n) for n in (3, 4, 2, 8, 1)])
            >>> [batch.shape for batch in ds.batch_by_tokens(8).numpy()]
            [(2, 4), (1, 2), (1, 8), (1, 1)]
        """
        return self._verb(
            "batch_by_tokens",
            max_tokens=check.whole(max_tokens, "max_tokens", 1),
            field=_columns.field_name(field),
            bucket_boundaries=_columns.wholes(bucket_boundaries, "bucket_boundaries"),
            drop_last=bool(drop_last),
            pad=_pad(self, None, padding_values, multiple_of, lengths, mask),
        )

    def batch_by_duration(  # type: ignore[misc]
        self: Dataset,
        max_duration: float | None,
        field: str | int | None = None,
        *,
        max_samples: int | Sequence[int] | None = None,
        bucket_boundaries: Sequence[float] = (),
        padding_values: Any = None,
        multiple_of: int | None = None,
        drop_last: bool = False,
        lengths: bool = False,
        mask: bool = False,
    ) -> Dataset:
        """Batches of as many sounds as last ``max_duration`` seconds at most, padding included.

        Samples are taken in the order of the epoch; a batch ends before the next sample would make it too long. Put
        `shuffle` before it, and `shard` after it. A sound that is too long by itself is a bad sample.

        Seconds are those of the files, or of the parts of them that samples are, whatever transforms make of them:
        they are taken from ``durations`` of `audio_files` and `audio_manifest`, and otherwise from the heads of all
        files, which are read when this is called and kept. Files of MP3, Ogg and AAC are read whole for it, as are
        samples in tar shards.

        Args:
            max_duration: Seconds of the longest sound of the batch times its number of samples, at most. None: any;
                then ``max_samples`` says when a batch is full. Each sound counts as 1 ms at least.
            field: The field of sounds that counts: its name, or its place in a tuple. None if there is only one.
            max_samples: Samples in a batch at most: one number, or one for each bucket. A batch of so many is full.
            bucket_boundaries: Seconds from which on the next bucket begins: with them, sounds of similar duration
                share a batch, and there is less padding. What is left in buckets at the end of the epoch makes
                smaller batches.
            padding_values: As of `padded_batch`.
            multiple_of: As of `padded_batch`, in frames of what transforms make. Does not count in ``max_duration``.
            drop_last: Leave out the batches that are not full at the end of an epoch.
            lengths: As of `padded_batch`: lengths along time, in frames of what transforms make.
            mask: As of `padded_batch`.

        Raises:
            ValueError: A limit or boundary makes no sense, there is no field of sounds, or the source cannot tell
                durations.

        Example:
            >>> import pathlib, tempfile, wave
            >>> import wellfed as wf
            >>> root = pathlib.Path(tempfile.mkdtemp())
            >>> for number, seconds in enumerate((1, 3, 1, 2)):
            ...     with wave.open(str(root / f"{number}.wav"), "wb") as file:
            ...         file.setparams((1, 2, 8000, 0, "NONE", ""))
            ...         file.writeframes(bytes(16000 * seconds))
            >>> ds = wf.audio_folder(root, labels=None)
            >>> [batch.shape for batch in ds.batch_by_duration(4, bucket_boundaries=[2.5]).numpy()]
            [(2, 1, 8000), (1, 1, 16000), (1, 1, 24000)]
        """
        samples: list[int] = []
        if max_samples is not None:
            several = check.is_sequence(max_samples)
            samples = _columns.wholes(max_samples if several else [max_samples], "max_samples")
        return self._verb(
            "batch_by_duration",
            max_duration=None if max_duration is None else check.number(max_duration, "max_duration"),
            field=_columns.field_name(field),
            max_samples=samples,
            bucket_boundaries=_columns.reals(bucket_boundaries, "bucket_boundaries"),
            drop_last=bool(drop_last),
            pad=_pad(self, None, padding_values, multiple_of, lengths, mask),
        )


def _pad(
    dataset: Dataset, shapes: Any, values: Any, multiple_of: int | None, lengths: bool, mask: bool
) -> dict[str, Any]:
    return _columns.padding(json.loads(dataset._native.structure), shapes, values, multiple_of, lengths, mask)
