"""Where a difference comes from: parts of the time, dips, profiles, and trials that stand out."""
