"""Causes of differences: time breakdown, throughput dips, CPU profiles, outlier trials."""
