"""One arm against the baseline: effects, verdicts, what to doubt, and how much the machine trembles."""
