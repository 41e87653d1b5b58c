"""Everything a study measured, in one SQLite file: ``schema.sql`` says what, ``records`` in which types.

``writer`` puts it there while the study runs, ``reader`` takes it out, also while it runs. Nothing here
computes.
"""
