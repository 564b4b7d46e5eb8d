"""`wellfed.feed` of a ``tf.data.Dataset``: reads its graph, and runs natively what it knows.

Invariant: what comes out has the bits that TensorFlow would give, or the data set is left as it is. TensorFlow is
imported by the modules that need it when they are asked for, never by wellfed itself.
"""
