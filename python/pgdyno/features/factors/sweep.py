"""``pgdyno compare 18 --sweep SETTING=VALUE,VALUE…``: one server, with one arm for each value of a setting.

Several sweeps give an arm for each combination, in the order of a study file with these factors. Their levels
are recorded, so that the report has main effects and interactions.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.options import StudyOptions
from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import LOAD_PARAMETERS, NAME_MAX, OF_ARM, ArmSpec, parse_arms
from pgdyno.study.cases import SETTING_PREFIX, ChosenArms, label_of
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, split_quantity


@dataclass(frozen=True)
class SweepOptions(StudyOptions):
    """The option of ``compare``."""

    COMMANDS: ClassVar = {"compare": "clients"}
    GROUP: ClassVar = "study"

    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING=VALUE,VALUE…",
            help="Compare values of a setting on the one ARM that is named; the first value is the baseline. "
            "May be repeated for other settings: every combination is an arm.",
        ),
    ] = None

    def chosen_arms(self, texts: Sequence[str]) -> ChosenArms | None:
        """Return an arm for each value. Raises UsageError."""
        return choose_arms(texts, self.sweep) if self.sweep else None


SWEPT_ARMS_MAX = 16
"""Maximum number of arms of a sweep. Each has its own copy of the data, and lengthens every block."""

EXAMPLE = "for example: --sweep work_mem=4MB,64MB"


@dataclass(frozen=True)
class SettingSweep:
    """A setting and its values; the first one is that of the baseline."""

    setting: str
    values: Sequence[str]


def parse_sweep(text: str) -> SettingSweep:
    """Parse ``work_mem=4MB,64MB``. Raises UsageError."""
    found = re.fullmatch(r"\s*([A-Za-z_][\w.$]*)\s*=(.*)", text, re.DOTALL)
    if not found:
        raise UsageError(f"--sweep must be SETTING=VALUE,VALUE… (got {text!r}); {EXAMPLE}")
    setting, values = found[1].lower(), [value.strip() for value in found[2].split(",")]
    if any(_is_part_of_a_value(value) for value in values):
        raise UsageError(
            f"--sweep {text!r} has a value that contains a comma: name its arms instead, "
            f"for example: 18,{setting}=a,b 18,{setting}=c"
        )
    if "" in values:
        raise UsageError(f"--sweep {text!r} has an empty value: remove it, or name its arms instead")
    if len(values) < 2:
        raise UsageError(f"--sweep {text!r} has one value: give two or more, baseline first; {EXAMPLE}")
    same = [_canonical(value) for value in values]
    if twice := [value for value, of in zip(values, same, strict=True) if same.count(of) > 1]:
        raise UsageError(
            f"--sweep {text!r} has the value {' and '.join(dict.fromkeys(twice))} twice: remove one of them"
        )
    return SettingSweep(setting, values)


_BOOLEANS = {"true": "on", "yes": "on", "false": "off", "no": "off"}


def _canonical(value: str) -> object:
    """Return a value that is equal for spellings of one setting: 4MB and 4096kB, on and true."""
    with contextlib.suppress(ValueError):
        number, unit = split_quantity(value)
        for units in (SIZE_UNITS_BYTES, DURATION_UNITS_S):
            if unit in units:
                return round(number * units[unit], 6), min(units)
        return number, unit
    return _BOOLEANS.get(value.lower(), value.lower())


def _is_part_of_a_value(text: str) -> bool:
    """Return True if quotes or parentheses do not match, because a comma inside them was split."""
    return text.count("(") != text.count(")") or text.count('"') % 2 == 1 or text.count("'") % 2 == 1


def choose_arms(texts: Sequence[str], sweeps: Sequence[str]) -> ChosenArms:
    """Return the arms of a command line, with at most one sweep of each setting. Raises UsageError."""
    arms = tuple(parse_arms(texts))
    if len(arms) != 1:
        raise UsageError(
            f"--sweep requires exactly one ARM, the server of all values (got {len(arms)}); "
            "for several servers, make the setting a factor of a study file (pgdyno docs write-a-study)"
        )
    return _swept(arms[0], [parse_sweep(text) for text in sweeps])


def _names(levels: Sequence[Mapping[str, str]]) -> list[str]:
    """Return names that fit a table: the last settings are left out if they are too long.

    An arm whose values alone are too long has a number. The report has all settings.
    """
    for named in range(len(levels[0]), -1, -1):
        names = [
            ", ".join(
                label_of({factor: value}) if place < named else value
                for place, (factor, value) in enumerate(of_arm.items())
            )
            for of_arm in levels
        ]
        if max(map(len, names)) <= NAME_MAX:
            break
    return [name if len(name) <= NAME_MAX else f"arm {place + 1}" for place, name in enumerate(names)]


def _swept(arm: ArmSpec, sweeps: Sequence[SettingSweep]) -> ChosenArms:
    settings = [sweep.setting for sweep in sweeps]
    if arm.is_dsn:
        raise UsageError(
            "--sweep requires a server that pgdyno starts: settings cannot be given for a running server; "
            "name a version or a directory"
        )
    for setting in settings:
        if settings.count(setting) > 1:
            raise UsageError(f"--sweep {setting} is given twice: list all values in one of them")
        if setting in (*LOAD_PARAMETERS, *OF_ARM):
            raise UsageError(
                f"--sweep {setting}: it is no setting of the server: name the arms instead, "
                f"for example: {arm.server} {arm.server},{setting}=…"
            )
        if setting in arm.settings:
            raise UsageError(f"the arm and --sweep both set {setting}: remove it from the arm")
    if (arms := math.prod(len(sweep.values) for sweep in sweeps)) > SWEPT_ARMS_MAX:
        raise UsageError(
            f"--sweep gives {arms} arms, more than the maximum of {SWEPT_ARMS_MAX}: remove values"
        )
    chosen = list(itertools.product(*(sweep.values for sweep in sweeps)))
    levels = [
        {f"{SETTING_PREFIX}{setting}": value for setting, value in zip(settings, values, strict=True)}
        for values in chosen
    ]
    names = _names(levels)
    specs = [
        arm.model_copy(
            update={
                "name": name,
                "is_named": True,
                "settings": {**arm.settings, **dict(zip(settings, values, strict=True))},
            }
        )
        for name, values in zip(names, chosen, strict=True)
    ]
    return ChosenArms(tuple(specs), tuple(levels), arm.name)
