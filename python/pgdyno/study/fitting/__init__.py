"""The rules by which a study is fitted to a machine and a time; ``study/fit.py`` puts them together."""
