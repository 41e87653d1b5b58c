"""Settings: definitions, profiles, values in effect, and safety."""
