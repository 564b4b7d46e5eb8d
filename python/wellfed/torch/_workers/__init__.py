"""Worker processes: batches are assembled in anonymous shared memory and handed over by descriptor, once.

- `tasks.py`: one epoch as the consumer sees it: order, prefetching, errors, timeouts; also of worker threads;
- `iterator.py`: the same with what is of processes;
- `pool.py`: the processes: started, watched, ended;
- `worker.py`: what runs in each of them;
- `template.py`, `nursery.py`: for `spawn` and `forkserver`, the clean process that workers are forked from;
- `pack.py`, `arena.py`, `channel.py`: a batch as bytes, the memory it lies in, the messages about it.
"""

from __future__ import annotations

import os
import socket
import sys

__all__ = ["supported"]


def supported() -> bool:
    """Whether this system has what the pool needs: memfd, pidfd and descriptors over sockets (Linux has)."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return False
    try:
        for descriptor in (os.memfd_create("wellfed"), os.pidfd_open(os.getpid())):
            os.close(descriptor)
    except OSError:
        return False
    return hasattr(socket, "SCM_RIGHTS") and hasattr(socket, "SOCK_SEQPACKET")
