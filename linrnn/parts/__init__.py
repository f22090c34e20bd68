"""The parts of a model except its blocks: checks of inputs, the encoder, pooling, and the state between steps."""
