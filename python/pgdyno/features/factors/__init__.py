"""Factors of a study: main effects, interactions, scalability."""
