"""Results file: all measurements of a study in one SQLite file.

``schema.sql`` defines the tables, ``records`` the types. ``writer`` fills the file during the study.
``reader`` reads it, also while the study runs. This package computes nothing.
"""
