"""Rules that fit a study to a machine and a time; ``fit_study.py`` applies them."""
