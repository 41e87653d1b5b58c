"""Builds from source, and extensions built into a private copy of a server."""
