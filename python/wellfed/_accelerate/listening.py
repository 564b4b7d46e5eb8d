"""Whether transforms do what their library wrote: nobody has replaced their methods, and nobody listens to them."""

from __future__ import annotations

from typing import Any

__all__ = ["of_library", "unheard"]

_HIDING = ("forward", "transform", "make_params", "get_params", "_forward_hooks", "_forward_pre_hooks")
"""What an instance may have that stands before, or hides, what its class does."""


def unheard(*steps: Any) -> bool:
    """Whether these modules do what their classes do, and nobody listens to what goes in or comes out."""
    from torch.nn.modules import module

    if module._global_forward_hooks or module._global_forward_pre_hooks:
        return False
    return not any(vars(step).get(name) for step in steps for name in _HIDING)


def of_library(methods: Any, library: str = "torchvision") -> bool:
    """Whether nobody has put other functions in the place of these."""
    return all((getattr(method, "__module__", "") or "").split(".")[0] == library for method in methods)
