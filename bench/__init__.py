"""Benchmarks: ratios measured side by side in one run, as the machine may be shared and noisy."""
