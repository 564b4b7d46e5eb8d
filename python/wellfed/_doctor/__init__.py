"""What `wellfed doctor` runs inside of a training script, and how a program starts it in itself.

`inject/` goes first on `PYTHONPATH` of the script's processes. Nothing there imports wellfed.
"""
