"""Checks of the machine: properties that disturb measurements, that are fine, or that are unknown.

One module per subject, one function per check: from the values of ``probe.machine_state`` to a ``Checked``.
Each limit is a named constant with its reason. ``examination.py`` has the list.
"""
