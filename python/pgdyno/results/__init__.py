"""Results file: all measurements of a study in one SQLite file.

``records`` defines the tables and their types; ``generated_schema.sql`` is made from it. ``writer`` fills the
file during the study. ``reader`` reads it, also while the study runs. This package computes nothing.
"""
