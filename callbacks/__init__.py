"""When to decode during validation, and what to log; no maths of their own."""

from callbacks.acceptance import MTPAcceptance, NGramAcceptance, SampleTrace, SpeculativeAcceptance
from callbacks.run_record import MetricsFile, Throughput

__all__ = [
    "MTPAcceptance",
    "MetricsFile",
    "NGramAcceptance",
    "SampleTrace",
    "SpeculativeAcceptance",
    "Throughput",
]
