"""Judges the state of the machine: what of it disturbs measurements, what is fine, what it does not tell.

One module a subject, one function a check: from the values of ``probe.machine`` to a ``Checked``. Limits
have a name and a reason where they stand. ``examine.py`` has the list.
"""
