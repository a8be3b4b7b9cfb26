"""Theory, statistics and exactness checks; timings come in as arguments."""
