"""What the scripts beside this one share: pixels, and hashes of results."""

import numpy as np


def pixels(count):
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    return np.frombuffer(bytes(out), np.uint8)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
