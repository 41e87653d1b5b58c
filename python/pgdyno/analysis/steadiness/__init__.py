"""Whether a trial was warm, and whether it held still while it was measured."""
