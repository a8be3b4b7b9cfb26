"""Decoding: sampling, accept rules, drafters, the round, the loop, the trace. One decoder for callbacks and bench."""
