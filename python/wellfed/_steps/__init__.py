"""Python steps: callables, torch data sets and generators inside of a pipeline.

- `seeds.py`: random generators that depend on the sample alone;
- `program.py`: the part of a plan above its sources, as Python that makes one element of a pick;
- `maker.py`: makes whole batches in a worker; what fails in it is data, not an exception;
- `failures.py`: bad samples on their way to the caller;
- `loader.py`: the loader: position and state here, batches by `wellfed.torch`'s workers;
- `stream.py`: data sets without an index.

Which sample comes when is always the native order's to say; nothing here stores a list of samples.
"""
