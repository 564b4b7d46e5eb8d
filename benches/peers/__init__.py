"""One module per loader under comparison; `spec.py` states the interface they share."""
