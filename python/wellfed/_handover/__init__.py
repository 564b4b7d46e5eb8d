"""Batches as TensorFlow, Keras and JAX take them. Each framework has a module, imported when it is asked for."""
