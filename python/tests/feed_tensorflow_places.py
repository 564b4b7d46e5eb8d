"""Places of iterators of `wf.feed`, which ``tf.train.Checkpoint`` saves: cases of `feed_tensorflow_cases.py`.

That script runs them in its own process: a function whose name begins with ``case_`` is a test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from feed_tensorflow_cases import (
    FOLDER,
    PATHS,
    RECORDS,
    equal,
    fed,
    left,
    load,
    ordered,
    parsed,
    paths,
    small,
)
from wellfed.exceptions import StateError


def flat(batches: Any) -> list[bytes]:
    """The bits of batches, one by one."""
    return [b"".join(part.numpy().tobytes() for part in tf.nest.flatten(batch)) for batch in batches]


def saved(iterator: Any) -> str:
    """Where the place of an iterator is saved."""
    return str(tf.train.Checkpoint(iterator=iterator).save(str(FOLDER / "places" / "c")))


def restored(dataset: Any, path: str) -> Any:
    """A new iterator of a data set that goes on at a place."""
    iterator = iter(dataset)
    tf.train.Checkpoint(iterator=iterator).restore(path).assert_consumed()
    return iterator


def refused(act: Any, why: str) -> None:
    """Fails unless a state is refused."""
    try:
        act()
    except StateError as error:
        text = str(error)
    else:
        text = "nothing was refused"
    assert why in text, text


def flipped(path: Any, label: Any) -> Any:
    """An image that random numbers change."""
    image = tf.image.random_flip_left_right(tf.image.resize(load(path), [9, 8]))
    return tf.image.random_brightness(image / 255, 0.2), label


def makers() -> list[Any]:
    """Pipelines, each made anew by a call."""
    native = {"random": "native"}
    return [
        lambda: fed(paths().map(small).batch(5)),
        lambda: fed(paths().map(small).batch(5, drop_remainder=True).prefetch(2)),
        lambda: fed(paths().shuffle(7, seed=4).map(small).batch(5)),
        lambda: fed(paths().shuffle(7, seed=4, reshuffle_each_iteration=False).map(small).batch(4)),
        lambda: fed(paths().map(flipped).batch(5), **native),
        lambda: fed(paths().shuffle(9, seed=5).map(flipped).batch(5), **native),
        lambda: fed(paths().shuffle(9, seed=5).map(flipped).batch(5), shuffle="global", **native),
        lambda: fed(
            tf.data.Dataset.list_files(RECORDS, seed=3)
            .interleave(tf.data.TFRecordDataset, cycle_length=2)
            .shuffle(6, seed=2)
            .map(parsed)
            .batch(5)
        ),
    ]


def case_iterators_go_on_where_they_were_saved() -> None:
    rng = np.random.default_rng(2)
    tf.random.set_seed(11)
    for number, make in enumerate(makers()):
        data = make()
        for _ in range(number % 3):
            list(data)
        iterator, count = iter(data), int(rng.integers(0, 6))
        for _ in range(count):
            next(iterator, None)
        path = saved(iterator)
        rest, then = flat(iterator), [flat(data), flat(data)]
        # In a new data set, in one that is elsewhere, and in the same one.
        elsewhere = make()
        next(iter(elsewhere)), list(elsewhere)
        for again in (make(), elsewhere, data):
            assert flat(restored(again, path)) == rest, (number, count)
            assert [flat(again), flat(again)] == then, (number, count)


def case_random_orders_go_on_where_they_were_saved() -> None:
    rng, tried = np.random.default_rng(7), 0
    for number in range(16):
        data = fed(ordered(np.random.default_rng(number)))
        if type(data).__name__ != "Fed":
            continue
        iterator = iter(data)
        for _ in range(int(rng.integers(0, 5))):
            next(iterator, None)
        path = saved(iterator)
        rest = flat(iterator)
        assert flat(restored(fed(ordered(np.random.default_rng(number))), path)) == rest, number
        tried += 1
    assert tried > 5, tried


def case_restored_iterators_go_on_in_functions() -> None:
    @tf.function
    def two(iterator: Any) -> Any:
        return next(iterator), next(iterator)

    for make in makers()[2:6]:
        data = make()
        iterator = iter(data)
        next(iterator)
        path = saved(iterator)
        rest = flat(iterator)
        again = restored(make(), path)
        first = flat(two(again))
        assert first + flat(again) == rest
        refused(lambda: saved(again), "advanced by TensorFlow")  # noqa: B023
        half = iter(make())
        next(half)
        assert flat(two(half)) + flat(half) == rest


def case_whoever_advances_them_iterators_have_one_order() -> None:
    @tf.function
    def labels(data: Any) -> Any:
        found = tf.TensorArray(tf.int32, 0, True, infer_shape=False)
        for _, label in data:
            found = found.write(found.size(), label)
        return found.concat()

    def make() -> Any:
        return paths().shuffle(9, seed=4).map(small).batch(5)

    theirs, ours = make(), fed(make())
    # Made in this order, and asked in another one.
    first, other = iter(theirs), iter(ours)
    assert np.array_equal(labels(theirs), labels(ours))
    assert flat(iter(theirs)) == flat(iter(ours))
    assert flat(first) == flat(other)
    assert flat(theirs.map(lambda x, y: (x, y))) == flat(ours.map(lambda x, y: (x, y)))
    equal(theirs, ours)


def case_places_that_cannot_be_found_again_are_refused() -> None:
    # Another case may have set one, which seeds all shuffles.
    context.context()._seed = None
    unseeded = iter(fed(paths().shuffle(5).map(small).batch(5)))
    next(unseeded)
    refused(lambda: saved(unseeded), "has no seed")
    turned = fed(paths().shuffle(9, seed=1).shuffle(9, seed=2).map(small).batch(5))
    first, iterator = iter(turned), iter(turned)
    next(iterator), next(first)
    refused(lambda: saved(iterator), "another order than made")
    repeated = fed(paths().shuffle(5, seed=1).repeat(2).map(small).batch(5))
    iterator = iter(repeated)
    next(iterator)
    path = saved(iterator)
    rest = flat(iterator)
    assert flat(restored(fed(paths().shuffle(5, seed=1).repeat(2).map(small).batch(5)), path)) == rest
    second = iter(repeated)
    next(second)
    refused(lambda: saved(second), "repeat of a shuffle")
    for other in (
        paths().shuffle(5, seed=2).repeat(2).map(small).batch(5),
        paths().shuffle(5, seed=1).repeat(2).map(small).batch(4),
        paths().take(9).shuffle(5, seed=1).repeat(2).map(small).batch(5),
        paths().shuffle(5, seed=1).repeat(2).map(lambda p, y: (small(p, y)[0] / 2, y)).batch(5),
    ):
        refused(lambda: restored(fed(other), path), "another pipeline")  # noqa: B023
    plain = iter(fed(paths().map(small).batch(5)))
    refused(lambda: tf.train.Checkpoint(iterator=plain).restore(path), "pipeline that shuffles")
    mixed = iter(fed(paths().map(lambda p, y: (tf.sqrt(small(p, y)[0]), y)).batch(5)))
    try:
        saved(mixed)
    except tf.errors.OpError:
        return
    raise AssertionError("the place of an iterator of TensorFlow's over the engine was saved")


def case_a_place_at_the_end_is_the_end() -> None:
    for make in makers()[1:6:2]:
        # Whether or not it was asked for more than there is.
        for asked in (True, False):
            data = make()
            iterator = iter(data)
            for _ in range(int(data.cardinality())):
                next(iterator)
            if asked:
                assert next(iterator, None) is None
            path, again = saved(iterator), make()
            assert flat(restored(again, path)) == []
            assert flat(again) == flat(data), asked
    assert len(PATHS) == 24
    left(paths().map(lambda p, _: load(p)).batch(2), "differ in size")
