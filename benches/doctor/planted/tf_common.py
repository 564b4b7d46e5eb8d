"""What the planted scripts on TensorFlow share: the device as a layer, the clock as a callback."""

from __future__ import annotations

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from common import Clock

# What `fit` itself takes a step: of the time that a step is to take, the device does not wait for this.
FIT = 3.5e-3


class Device(keras.layers.Layer):
    """Lets a batch pass after the time a device would take for its step; waiting uses no core."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def call(self, x: tf.Tensor) -> tf.Tensor:
        def wait(first: np.ndarray) -> np.ndarray:
            time.sleep(self.seconds)
            return first

        # Of the batch, or TensorFlow would begin to wait before there is one.
        first = tf.reshape(x, [-1])[:1]
        waited = tf.numpy_function(wait, [first], tf.float32, stateful=True)
        # What the device computes is not for the host to compute: it is left a corner.
        with tf.control_dependencies([waited]):
            return tf.identity(x[:, :8, :8])


class Clocked(keras.callbacks.Callback):
    """Counts steps, and ends the training when its time is over."""

    def __init__(self, clock: Clock, batch: int) -> None:
        super().__init__()
        self.clock, self.batch = clock, batch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.clock.step(self.batch, (logs or {}).get("loss", 0.0)):
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if not self.model.stop_training:
            self.clock.epoch()


def on_device(seconds: float, shape: tuple[int, ...]) -> keras.Model:
    """A model that takes so long a step."""
    layers = [
        keras.Input(shape),
        Device(max(0.0, seconds - FIT)),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ]
    return compiled(keras.Sequential(layers))


def compiled(model: keras.Model) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, jit_compile=False)
    return model
