//! Counters, histograms and intervals, and the identity that every transaction ends in exactly one outcome.
