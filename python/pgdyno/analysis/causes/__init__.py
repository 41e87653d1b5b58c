"""Where a difference comes from: time breakdown, throughput dips, CPU profiles, outlier trials."""
