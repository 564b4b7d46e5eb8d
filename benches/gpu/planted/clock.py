"""What the planted scripts share: their command line, and a clock that ends them and says how fast they were."""

from __future__ import annotations

import argparse
import json
import os
import time


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--photos", help="class folders of photographs")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to train")
    parser.add_argument("--fixed", action="store_true", help="without what was planted")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that the script works")
    return parser.parse_args()


class Clock:
    """Of steps, of which those of the first quarter of the time do not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.times: list[float] = []
        self.samples: list[int] = []

    def step(self, samples: int) -> bool:
        """Call after each step; whether the time is over. Then the speed is written."""
        self.times.append(time.perf_counter())
        self.samples.append(samples)
        took = self.times[-1] - self.times[0]
        if took < self.seconds or len(self.times) < 4:
            return False
        first = next(i for i, t in enumerate(self.times) if t >= self.times[0] + took / 4)
        first = min(first, len(self.times) - 2)
        steady = self.times[-1] - self.times[first]
        told = json.dumps(
            {"samples_per_s": sum(self.samples[first + 1 :]) / steady, "steps": len(self.times)}
        )
        if place := os.environ.get("PLANTED_RESULT"):
            with open(place, "w") as file:
                file.write(told)
        else:
            print(told)
        return True
