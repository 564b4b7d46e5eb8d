"""Writes hashes of TensorFlow's colours: `python tensorflow_colours_golden.py > ../golden/tensorflow_colours.txt`."""

import tensorflow as tf
from tensorflow_golden_pixels import fnv, pixels

SIZES = [(1, 1), (1, 2), (3, 5), (17, 31), (64, 43), (97, 131), (224, 199)]
ADJUSTMENTS = [
    ("contrast", 1.75, lambda x: tf.image.adjust_contrast(x, 1.75)),
    ("contrast", -0.5, lambda x: tf.image.adjust_contrast(x, -0.5)),
    ("saturation", 0.375, lambda x: tf.image.adjust_saturation(x, 0.375)),
    ("saturation", 2.5, lambda x: tf.image.adjust_saturation(x, 2.5)),
    ("hue", 0.3125, lambda x: tf.image.adjust_hue(x, 0.3125)),
    ("hue", -0.8125, lambda x: tf.image.adjust_hue(x, -0.8125)),
    ("grey", 0.0, tf.image.rgb_to_grayscale),
    ("standardize", 0.0, tf.image.per_image_standardization),
]

print(f"# adjustment parameter height width fnv1a, of pixels / 7 - 11; TensorFlow {tf.__version__}")
for height, width in SIZES:
    image = tf.cast(pixels(3 * height * width).reshape(height, width, 3), tf.float32) / 7.0 - 11.0
    for name, parameter, adjust in ADJUSTMENTS:
        # As a pipeline runs it.
        (made,) = tf.data.Dataset.from_tensors(image).map(adjust).as_numpy_iterator()
        print(name, parameter, height, width, f"{fnv(made.astype('<f4').tobytes()):016x}")
