"""What a model has around its blocks: checks of its inputs, the encoder, pooling, and the state between steps."""
