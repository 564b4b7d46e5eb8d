"""Draws step timelines as a PNG: how long each training step waited for data and how long it computed.

Pillow only. Above, every step of each training on one time axis; below, a few steps from the middle of
each, enlarged. Trainings share both axes, so that a shorter band is a faster training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

Step = tuple[float, float]
"""Seconds waited for data, then seconds computed."""

SCALE = 2
"""Pixels per unit of the layout below: twice, for dense screens."""
WIDTH, LEFT, RIGHT = 1120, 40, 40
BAND, GAP = 46, 40
COMPUTE, WAIT = "#2f7f79", "#ef7b45"
INK, PALE, RULE, PAPER = "#1d2a35", "#66747f", "#dfe4e8", "#ffffff"
ENLARGED = 8
"""Steps in the enlarged part."""


class _Sheet:
    """A canvas measured in layout units."""

    def __init__(self, height: int) -> None:
        self.image = Image.new("RGB", (WIDTH * SCALE, height * SCALE), PAPER)
        self.pen = ImageDraw.Draw(self.image)

    def box(self, x0: float, y0: float, x1: float, y1: float, color: str) -> None:
        """A filled rectangle; one thinner than a pixel is not drawn."""
        left, right = round(x0 * SCALE), round(x1 * SCALE) - 1
        if right >= left:
            self.pen.rectangle((left, round(y0 * SCALE), right, round(y1 * SCALE) - 1), fill=color)

    def text(
        self, x: float, y: float, words: str, size: float, color: str = INK, anchor: str = "ls"
    ) -> float:
        """Text on the base line `y`; returns its width."""
        font = ImageFont.load_default(size * SCALE)
        self.pen.text((x * SCALE, y * SCALE), words, fill=color, font=font, anchor=anchor)
        return float(self.pen.textlength(words, font=font)) / SCALE

    def steps(self, x: float, y: float, unit: float, steps: Sequence[Step]) -> float:
        """A band of steps, `unit` layout units per second; returns where it ends."""
        at = 0.0
        for wait, compute in steps:
            self.box(x + at * unit, y, x + (at + wait) * unit, y + BAND, WAIT)
            self.box(x + (at + wait) * unit, y, x + (at + wait + compute) * unit, y + BAND, COMPUTE)
            at += wait + compute
        return x + at * unit

    def axis(self, y: float, height: float, unit: float, longest: float, milliseconds: bool) -> None:
        """Time marks under bands that lie between `y` and `y + height`."""
        spacing = _round_up(longest / 9)
        for k in range(int(longest / spacing + 1e-9) + 1):
            x = LEFT + k * spacing * unit
            self.box(x, y, x + 0.5, y + height + 5, RULE)
            label = f"{k * spacing * 1000:,.0f} ms" if milliseconds else f"{k * spacing:g} s"
            self.text(x, y + height + 18, label, 11, PALE, "ms" if k else "ls")


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 2, 5) if m * power >= value), 10 * power)


def draw(path: Path, runs: Sequence[tuple[str, Sequence[Step], float]]) -> None:
    """Writes the picture of `runs`, each a name, its steps, and its samples per second."""
    runs = [run for run in runs if run[1]]
    if not runs:
        return
    pitch = BAND + GAP
    panel = len(runs) * pitch
    sheet = _Sheet(96 + panel + 92 + panel + 40)
    sheet.text(LEFT, 42, "Where the time of every training step goes", 21)
    x = float(LEFT)
    for color, words in ((WAIT, "waiting for data"), (COMPUTE, "computing: forward, backward, update")):
        sheet.box(x, 57, x + 13, 70, color)
        x += 19 + sheet.text(x + 19, 68, words, 12.5, PALE) + 22

    longest = max(sum(w + c for w, c in steps) for _, steps, _ in runs)
    unit = (WIDTH - LEFT - RIGHT) / longest
    top = 96
    sheet.axis(top + 20, panel - 20, unit, longest, milliseconds=False)
    for k, (name, steps, rate) in enumerate(runs):
        y = top + k * pitch + 28
        total = sum(w + c for w, c in steps)
        share = 100 * sum(w for w, _ in steps) / total
        used = sheet.text(LEFT, y - 8, name, 15)
        sheet.text(
            LEFT + used + 14, y - 8, f"{rate:,.0f} samples/s, {share:.0f} % of the time waiting", 12.5, PALE
        )
        end = sheet.steps(LEFT, y, unit, steps)
        if total < 0.92 * longest:
            sheet.text(end + 10, y + BAND / 2, f"done after {total:.1f} s", 12.5, PALE, "lm")

    chosen = []
    for name, steps, _ in runs:
        middle = max(0, len(steps) * 3 // 5 - ENLARGED // 2)
        chosen.append((name, steps[middle : middle + ENLARGED]))
    longest = max(sum(w + c for w, c in steps) for _, steps in chosen)
    unit = (WIDTH - LEFT - RIGHT) / longest
    top += panel + 92
    sheet.text(LEFT, top - 14, f"{ENLARGED} steps from the middle, enlarged", 15)
    sheet.axis(top + 20, panel - 20, unit, longest, milliseconds=True)
    for k, (name, steps) in enumerate(chosen):
        y = top + k * pitch + 28
        sheet.text(LEFT, y - 8, name, 12.5, PALE)
        sheet.steps(LEFT, y, unit, steps)
        at = 0.0
        for wait, compute in steps[:-1]:  # a fine line where one step ends and the next begins
            at += wait + compute
            sheet.box(LEFT + at * unit - 0.5, y - 2, LEFT + at * unit + 0.5, y + BAND + 2, PAPER)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.image.save(path, "PNG", optimize=True)
