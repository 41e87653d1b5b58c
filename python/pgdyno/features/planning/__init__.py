"""Check and explanation of study files before they run."""
