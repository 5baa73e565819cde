"""Looking for the triggers of stream rules: patterns that cannot hold anybody up, and the buffers of a turn."""
