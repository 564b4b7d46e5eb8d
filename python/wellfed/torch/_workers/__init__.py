"""Workers of both kinds: processes, which hand batches over in anonymous shared memory, and threads.

- `setup.py`: what a worker is told, and what its messages are about;
- `tasks.py`: one epoch as the consumer sees it: order, prefetching, errors, timeouts; the same for both kinds;
- `threads.py`: worker threads;
- `processes.py`: an epoch of worker processes;
- `choice.py`, `here.py`: whether the calling thread does their work, by measurement, and how;
- `reach.py`, `defaults.py`: whether samples may be made there; the random generators that they draw from;
- `pool.py`: the processes: started, watched, ended;
- `worker.py`, `state.py`: what runs in each of them, and what it reports of its state;
- `spawn_template.py`, `spawned.py`: for `spawn` and `forkserver`, the clean process that workers descend from;
- `shared_payload.py`: the data set on its way to them;
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
