"""The laboratory: sessions made on the spot, for demonstrations, tests and benchmarks."""
