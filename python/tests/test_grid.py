"""What a notebook shows of a data set: pictures, labels, boxes, and errors as text."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from wellfed._grid import cell, grid, is_picture, leaves, pixels, png


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_holds_the_pixels(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    back = np.asarray(Image.open(io.BytesIO(png(image))))
    assert np.array_equal(back.reshape(image.shape), image)


def test_channels_first_and_last_show_the_same():
    image = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    first, _ = pixels(image.transpose(2, 0, 1))
    last, remark = pixels(image)
    assert np.array_equal(first, last)
    assert np.array_equal(last, image)
    assert remark == ""


def test_normalized_pixels_are_mapped_and_that_is_said():
    image = np.linspace(-2, 2, 3 * 8 * 8, dtype=np.float32).reshape(3, 8, 8)
    shown, remark = pixels(image)
    assert (shown.min(), shown.max()) == (0, 255)
    assert remark == "-2 is black, 2 is white"
    plain, remark = pixels((image + 2) / 4)
    assert np.array_equal(plain, shown)
    assert remark == ""


def test_odd_values_do_not_break_it():
    image = np.full((1, 8, 8), np.nan, np.float32)
    image[0, 0, 0] = np.inf
    assert pixels(image)[0].shape == (8, 8, 1)
    assert not is_picture(np.zeros((3, 0, 8)))
    assert not is_picture(np.zeros((2, 7, 9)))
    assert not is_picture("text")


def test_large_images_are_thinned_out():
    shown, _ = pixels(np.zeros((3, 1000, 500), np.uint8))
    assert max(shown.shape) <= 160


def test_nested_samples_name_their_fields():
    assert [name for name, _ in leaves((1, {"a": [2, 3]}))] == ["0", "1.a.0", "1.a.1"]
    assert [name for name, _ in leaves(5)] == [""]


def test_boxes_lie_over_the_image_in_its_own_pixels():
    sample = {"image": np.zeros((3, 300, 400), np.uint8), "boxes": np.array([[10.0, 20, 110, 220]])}
    text = cell(sample, None)
    assert 'viewBox="0 0 400 300"' in text
    assert 'x="10" y="20" width="100" height="200"' in text
    assert "boxes: 1 boxes" in text


def test_an_error_is_shown_and_text_is_escaped():
    good = (np.zeros((3, 8, 8), np.uint8), "<b>")
    text = grid(iter([ValueError("a < b"), good]), "x & y")
    assert "ValueError: a &lt; b" in text
    assert "&lt;b&gt;" in text
    assert "x &amp; y" in text
    found = re.search(r"base64,([A-Za-z0-9+/=]+)", text)
    assert found
    assert Image.open(io.BytesIO(base64.b64decode(found[1]))).size == (8, 8)
