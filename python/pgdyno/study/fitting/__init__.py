"""Rules that fit a study to a machine and a time budget; ``fit_study.py`` applies them."""
