"""Execution of the notebooks of the documentation, without a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def execute(name: str, **instead: object) -> dict[str, Any]:
    """Execute the cells of a notebook in the current directory and return its variables.

    ``instead``: other values of variables that its first cell sets.
    """
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    assert not [cell for cell in notebook["cells"] if cell.get("outputs")]
    variables: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), variables)
            assert instead.keys() <= variables.keys()
            variables |= instead
    return variables
