"""What one step of training consists of: the record `model`."""


def install() -> None:
    """Not yet."""
