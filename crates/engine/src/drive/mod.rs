//! Clients, pacing, slices and the whole run.
