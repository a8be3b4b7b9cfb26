"""From a run's or a bench's plain data to pictures and pages."""
