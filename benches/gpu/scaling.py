"""Images a second of the CPU pipeline by number of threads, beside torch's DataLoader. No device is used.

    python benches/gpu/scaling.py --out OUT --photos FOLDER

JPEG photographs → RandomResizedCrop(224) → flip → normalize → float32 batches of 256, from files in the page cache.
wellfed runs without row indexes, so that nothing is known of a file before it is decoded; the rows "indexed" have
wellfed's default, after one epoch in which the indexes are made.
"""

from __future__ import annotations

from typing import Any

from common import (
    Results,
    arguments,
    close,
    cores,
    halves,
    images_of,
    photographs,
    rate,
    torch_loader,
    wellfed_loader,
)


def main() -> None:
    args = arguments(__doc__, seconds=4, limit=100, threads={"type": int, "nargs": "*"})
    batch = 32 if args.small else args.batch
    all_ = cores()
    with Results("scaling", args) as results:
        root = photographs(args)
        count = sum(1 for _ in root.glob("*/*.jpg"))
        results.put("images", count)

        def wellfed(threads: int, kind: str = "cpu", warm: int = 4, **options: Any) -> float:
            loader = wellfed_loader(kind, root, batch, threads, None, **options)
            try:
                return rate(loader, args.seconds, warm, images_of)
            finally:
                close(loader)

        def torch(workers: int) -> float:
            # Workers give their first batches all at once, twice: prefetch_factor.
            return rate(torch_loader(root, batch, workers), 1.5 * args.seconds, 2 * workers, images_of)

        rates = {}
        for threads in sorted(args.threads or halves(all_), reverse=True):
            rates[threads] = results.attempt(f"wellfed, {threads} threads", lambda n=threads: wellfed(n))
        results.attempt(f"torch DataLoader, {all_} workers", lambda: torch(all_))
        epoch = count // batch + 1
        results.attempt(
            f"wellfed indexed, {all_} threads", lambda: wellfed(all_, warm=epoch, row_index="memory")
        )
        results.attempt(f"wellfed uint8, {all_} threads", lambda: wellfed(all_, "cpu uint8"))
        if all_ > 2:
            results.attempt(f"torch DataLoader, {all_ // 2} workers", lambda: torch(all_ // 2))
            results.attempt("wellfed indexed, 2 threads", lambda: wellfed(2, warm=epoch, row_index="memory"))
        one = rates.get(1)
        if one:
            scaled = {n: r / one for n, r in sorted(rates.items()) if r}
            results.put("times one thread", scaled)
            print("times one thread:", ", ".join(f"{n}: {r:.2f}" for n, r in scaled.items()), flush=True)


if __name__ == "__main__":
    main()
