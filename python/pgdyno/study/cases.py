"""The cases of a study file, each a comparison with its arms. Pure: the same file gives the same cases."""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import ProgrammingError
from pydantic import ValidationError

from pgdyno.errors import StudyFileError, UsageError, plain_message
from pgdyno.study import defaults
from pgdyno.study.arm_spec import OF_ARM, ArmSpec, has_secrets, is_settings_file, parse_arm
from pgdyno.study.defaults import TOGETHER, BlockLayout, adaptive_warm_up, fit_block_layout, whole_rounds
from pgdyno.study.plan import Driving, Study, block_targets
from pgdyno.study.schedule import likely_timeout_s, rounds_for, seed_of, unit_of_window_s
from pgdyno.study.study_file import Drive, Initdb, Run, StudyFile, driving_fields, excludes, key_of
from pgdyno.study.values import Level, Settings, StudyTable, frozen, level_name
from pgdyno.study.workload_parameters import WorkloadParameters, parameters_by_kind, workload_from

# ----------------------------------------------------------------------
# The cases of a study file, each a comparison with its arms. Pure: the same file gives the same cases.
#
# Combinations of the factors in ``compare`` are the arms; combinations of the others are the cases.
# Exclusions remove combinations. A factor ``settings.NAME`` is one setting: of all arms of a case, or of the
# arm that it creates.
# ----------------------------------------------------------------------

Levels = Mapping[str, Level]
"""One level of each factor, by the name of the factor."""

COMBINATIONS_MAX = 10_000
"""Maximum number of combinations of levels; more is a typing error."""

KNOWN_MAX = 8
"""Number of files whose cases are remembered: a fit needs those of the same files several times."""

UNLIMITED_S = 366 * 86_400.0
"""Budget of a case that is limited by its number of blocks only."""

SPEAKING = ("server", "settings", "variant", "workload")
"""Factors whose levels need no name of the factor: ``12``, ``untuned``. Others: ``clients 8``."""

SETTING_PREFIX = "settings."
"""Start of the name of a factor that is a single setting: ``settings.wal_compression``."""

FILE_KEYS = {"per_s": "rate", "retries_max": "retries", "n": "drivers", "blocks_max": "repeats"}
"""Keys of the file whose field in the plan has another name, by that name."""


@dataclass(frozen=True)
class Case:
    """One comparison.

    ``levels``: levels of the factors that create the cases, by name. ``arms``: levels of the compared
    factors, for each arm.
    """

    name: str
    levels: Mapping[str, str]
    arms: tuple[Mapping[str, str], ...]
    study: Study


@dataclass(frozen=True)
class ChosenArms:
    """Arms of a comparison, and the levels of each if factors make them. ``server``: a common name."""

    arms: tuple[ArmSpec, ...]
    levels: tuple[dict[str, str], ...] = ()
    server: str = ""


@dataclass(frozen=True)
class Request:
    """A comparison, or the cases of a study file.

    ``file``: text of the study file. ``changes``: adjustments to this machine. ``published``: its table about
    the published experiment. ``is_part``: other machines measure other cases of the study.
    """

    title: str
    cases: Sequence[Case]
    command: str
    file: str = ""
    changes: Sequence[Mapping[str, str]] = ()
    published: StudyTable | None = None
    is_part: bool = False

    def name_of(self, case: Case) -> str:
        """Return the name of a case; empty if the study has only one."""
        return case.name if len(self.cases) > 1 or self.is_part else ""


_known: deque[tuple[StudyFile, tuple[Case, ...]]] = deque(maxlen=KNOWN_MAX)


def only_case(study: Study, levels: Sequence[Mapping[str, str]] | None = None) -> Case:
    """Return the case of a comparison without a study file. ``levels`` of each arm: those of a sweep."""
    return Case("", {}, tuple(levels or ({} for _ in study.arms)), study)


def cases_of(file: StudyFile, only: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return the cases in the order of the factors and their levels. Raises StudyFileError.

    ``only``: names of the cases, which share the budget of the study; empty for all.
    """
    if only:
        return _cases(file, only)
    for known, cases in _known:
        if known is file:
            return cases
    cases = _cases(file, ())
    _known.append((file, cases))
    return cases


def _cases(file: StudyFile, only: Sequence[str]) -> tuple[Case, ...]:
    combined = [
        (levels, arms) for levels in _product(file, file.case_factors) if (arms := _arms(file, levels))
    ]
    if only:
        combined = [(levels, arms) for levels, arms in combined if label_of(names_of(levels)) in only]
    if not combined:
        raise StudyFileError(("exclude",), "excludes every combination")
    return tuple(_case(file, levels, arms, len(combined)) for levels, arms in combined)


def names_of(levels: Levels) -> dict[str, str]:
    """Return the names of the levels by factor."""
    return {factor: level.name for factor, level in levels.items()}


def label_of(levels: Mapping[str, str]) -> str:
    """Return the name of an arm or a case from its levels: ``12, untuned``, ``scale 100, clients 8``."""
    return ", ".join(_label(factor, name) for factor, name in levels.items())


def _label(factor: str, level: str) -> str:
    if setting := setting_of(factor):
        return f"{setting}={level}"
    return level if factor in SPEAKING else f"{factor} {level}"


def setting_of(factor: str) -> str:
    """Return the setting of a factor ``settings.NAME``; empty for other factors."""
    return factor.removeprefix(SETTING_PREFIX) if factor.startswith(SETTING_PREFIX) else ""


def _product(file: StudyFile, factors: Sequence[str]) -> Iterator[Levels]:
    if math.prod(len(levels) for levels in file.factors.values()) > COMBINATIONS_MAX:
        raise StudyFileError(("factors",), f"must have at most {COMBINATIONS_MAX} combinations")
    for chosen in itertools.product(*(file.factors[name] for name in factors)):
        yield dict(zip(factors, chosen, strict=True))


def _arms(file: StudyFile, case: Levels) -> list[Levels]:
    """Return the arms without exclusions. Raises StudyFileError if only one remains."""
    left = [
        arm
        for arm in _product(file, file.compare)
        if not any(excludes(one, names_of({**case, **arm})) for one in file.exclude)
    ]
    if len(left) == 1:
        place = ("exclude",) if file.exclude else ("compare",)
        of = f" of the case {label_of(names_of(case))}" if case else ""
        words = f"leaves only one arm{of}: {label_of(names_of(left[0]))}"
        remedy = f"; to compare the levels of a factor, name it here: {_quoted(case)}" if case else ""
        raise StudyFileError(place, words if file.exclude else f"{words}{remedy}")
    return left


def _quoted(factors: Iterable[str]) -> str:
    """Return the factors as an array of TOML."""
    return f"compare = [{', '.join(json.dumps(factor) for factor in factors)}]"


def _case(file: StudyFile, case: Levels, arms: list[Levels], cases: int) -> Case:
    specs = tuple(_arm(file, {**case, **arm}, label_of(names_of(arm))) for arm in arms)
    layout = _layout(file, cases, specs)
    drivings = tuple(_driving(file, {**case, **arm}, layout["discard_s"]) for arm in arms)
    name = label_of(names_of(case)) or drivings[0].workload.kind
    fields: dict[str, Any] = {
        **dict(drivings[0]),
        **file.run.study_fields(),
        **layout,
        **_initdb(file.initdb),
        "title": f"{file.title}: {name}" if cases > 1 else file.title,
        "arms": specs,
        "seed": seed_of(file.run.seed, name),
        "drivers": _drivers(file),
        "aa_refused_by": "" if file.run.aa else "run.aa = false",
        **({} if file.run.probes is None else {"probes": file.run.probes}),
    }
    if any(driving != drivings[0] for driving in drivings):
        fields["drivings"] = drivings
    if file.warmup_workload is not None:
        if len({frozenset(_data(driving.workload).items()) for driving in drivings}) > 1:
            words = "requires arms with the same data: remove the factors that change the data from compare"
            raise StudyFileError(("warmup_workload",), words)
        fields["warmup_workload"] = _warmup_workload(file, case, drivings[0])
    try:
        study = Study.model_validate(fields)
    except ValidationError as error:
        raise _located(file, {**case, **arms[0]}, error) from None
    return Case(name, names_of(case), tuple(map(names_of, arms)), study)


def _drivers(file: StudyFile) -> dict[str, Any] | None:
    """Return the load generators on other nodes. Raises StudyFileError."""
    fleet = file.fleet
    try:
        fleet.require_drivers()
    except UsageError as error:
        raise StudyFileError((), file.as_keys(str(error))) from None
    if fleet.drivers is None:
        return None
    names = () if isinstance(fleet.drivers, int) else fleet.drivers
    own = {"address": fleet.address, "on_node_loss": fleet.on_node_loss}
    return {"n": fleet.n, "nodes": names, **own}


def has_password(server: str) -> bool:
    """Return whether a connection string contains a secret; False for other texts."""
    try:
        return parse_arm(server).is_dsn and has_secrets(server)
    except (UsageError, ProgrammingError):
        return False


def _arm(file: StudyFile, levels: Levels, name: str) -> ArmSpec:
    place, server = placed(levels, "server", ("server",), file.server)
    if not isinstance(server, str):
        raise StudyFileError(place, 'must be a server in quotes, for example "17" or "12.4"')
    try:
        spec = parse_arm(server)
    except UsageError as error:
        raise StudyFileError(place, str(error)) from None
    settings = own_settings_of(levels).over(file.settings)
    if spec.is_dsn and (settings.profiles or settings.values):
        raise StudyFileError(place, "settings cannot be given for a running server")
    if spec.load:
        name = next(iter(spec.load))
        raise StudyFileError(place, f"{name} cannot be given with the server: use the workload, or a factor")
    if spec.profiles or spec.settings:
        raise StudyFileError(place, "settings cannot be given with the server: use the table settings")
    spec = spec.model_copy(
        update={
            "name": name,
            "profiles": settings.profiles,
            "settings": dict(settings.values),
            "optional": settings.optional,
        }
    ).with_files(file.settings_files)
    given = spec.known_settings
    return spec.model_copy(update={"optional": tuple(name for name in spec.optional if name in given)})


def files_of(file: StudyFile) -> dict[str, tuple[str | int, ...]]:
    """Return the names of the settings files, each with its first place. Raises StudyFileError."""
    places: list[tuple[tuple[str | int, ...], Settings]] = [(("settings",), file.settings)]
    for level in file.factors.get("settings", ()):
        places.append((("factors", "settings", level.place), own_settings_of({"settings": level})))
    return {
        name: path
        for path, settings in reversed(places)
        for name in settings.profiles
        if is_settings_file(name)
    }


def own_settings_of(levels: Levels) -> Settings:
    """Return the settings of the levels of the factors only. Raises StudyFileError.

    A setting that is a factor must not be part of a set of settings, too: the factors would not be
    independent.
    """
    own = _settings_of_set(levels.get("settings"))
    single = {setting: level for factor, level in levels.items() if (setting := setting_of(factor))}
    for setting in single:
        if setting in own.values:
            place = ("factors", "settings", levels["settings"].place, setting)
            factor = f"{SETTING_PREFIX}{setting}"
            raise StudyFileError(
                place, f"{factor} is a factor of its own: remove the setting from this level"
            )
    values = {setting: level_name(level.value) for setting, level in single.items()}
    return Settings.model_construct(values=values).over(own)


def _settings_of_set(level: Level | None) -> Settings:
    """Return the settings of a level of the factor ``settings``."""
    if level is None:
        return Settings()
    path = ("factors", "settings", level.place)
    given = level.value
    if isinstance(given, str):
        try:
            spec = parse_arm(f"any,{given}")
        except UsageError as error:
            raise StudyFileError(path, str(error).replace("any,", "")) from None
        if name := next((name for name in OF_ARM if getattr(spec, name)), ""):
            raise StudyFileError(path, f"{name} is no setting: give it with the server, as 18,{name}=…")
        if spec.load:
            name = next(iter(spec.load))
            raise StudyFileError(path, f"{name} is no setting: use the workload, or a factor {name}")
        given = {"profiles": spec.profiles, **spec.settings}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise StudyFileError((*path, *first["loc"]), plain_message(first["msg"])) from None


def placed(
    levels: Levels, factor: str, otherwise: tuple[str, ...], value: Any
) -> tuple[tuple[str | int, ...], Any]:
    """Return the place of a value in the file and the value: of the level of the factor, or of all arms."""
    level = levels.get(factor)
    return (otherwise, value) if level is None else (("factors", factor, level.place), level.value)


def _driving(file: StudyFile, levels: Levels, discard_s: float) -> Driving:
    """Return the load of one arm. Raises StudyFileError."""
    values = {name: level.value for name, level in levels.items()}
    own = {**file.workload, **values.get("workload", {})}
    try:
        drive = driving_fields({name: values.get(name, own.pop(name, value)) for name, value in file.drive})
    except UsageError as error:
        raise StudyFileError((), file.as_keys(str(error))) from None
    if "clients" not in drive:
        raise StudyFileError(("drive",), "clients is missing: set it here or as a factor")
    given = {**own, **{name: value for name, value in values.items() if is_parameter(name)}}
    fields = {**drive, "discard_s": discard_s}
    try:
        fields["workload"] = workload_from(frozen(_parameters(own["kind"], levels, given)), strict=True)
    except ValidationError as error:
        raise _located(file, levels, error, ("workload",)) from None
    try:
        return Driving.model_validate(frozen(fields), strict=True)
    except ValidationError as error:
        raise _located(file, levels, error) from None


def is_parameter(factor: str) -> bool:
    """Return whether a factor is a parameter of the workload."""
    return factor not in ("server", "settings", "workload", *Drive.model_fields) and not setting_of(factor)


def _parameters(kind: str, levels: Levels, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters; those given override those of a variant. Raises StudyFileError."""
    own = dict(given)
    variant = own.pop("variant", None)
    if variant is None:
        return own
    try:
        return {**parameters_by_kind()[kind].variant(str(variant)), **own}
    except UsageError as error:
        place = placed(levels, "variant", ("workload", "variant"), None)[0]
        raise StudyFileError(place, str(error)) from None


def _warmup_workload(file: StudyFile, case: Levels, driving: Driving) -> Any:
    """Return the workload of the warm-up, with the same data. Raises StudyFileError."""
    assert file.warmup_workload is not None
    different = _parameters(driving.workload.kind, case, file.warmup_workload)
    try:
        made = workload_from(frozen({**driving.workload.model_dump(), **different}), strict=True)
        Driving.model_validate({**dict(driving), "workload": made})
    except ValidationError as error:
        first = error.errors()[0]
        raise StudyFileError(("warmup_workload", *first["loc"]), plain_message(first["msg"])) from None
    if _data(made) != _data(driving.workload):
        raise StudyFileError(("warmup_workload",), "cannot change the data of the workload")
    return made


def _data(workload: WorkloadParameters) -> dict[str, int | str]:
    return {**workload.shape(), **workload.aging()}


def _layout(file: StudyFile, cases: int, arms: Sequence[ArmSpec]) -> dict[str, Any]:
    """Return the fields for slices, rounds, warm-up, budget and number of blocks."""
    run = file.run
    budget_s = UNLIMITED_S if run.budget_s is None else run.budget_s / cases
    slice_s = run.slice_s or defaults.slice_s_of(file.fleet.n)
    if run.schedule not in TOGETHER and run.window_s is not None:
        slice_s = run.window_s / 2 if run.window_s < 2 else unit_of_window_s(run.window_s)
    rounds, slice_s = window_of(run, slice_s, run.schedule, arms)
    if rounds is None:
        turns = 1 if run.schedule == "duet" else len(arms)
        targets = block_targets(run.stop, run.repeats)
        rhythm = fit_block_layout(budget_s, turns, slice_s, run.schedule, targets)
    else:
        window_s = math.inf if run.checkpoints else run.window_s or rounds * slice_s
        rhythm = BlockLayout(max(2.0, float(round(min(WARM_UP_S_MAX, window_s / 3)))), rounds)
    return {
        "schedule": run.schedule,
        "slice_s": slice_s,
        "slices_may_grow": run.slice_s is None,
        "discard_s": defaults.discard_s(slice_s),
        **_warmup(file, rhythm.warmup_s, slice_s),
        "rounds": rhythm.rounds,
        "budget_s": budget_s,
    }


def window_of(run: Run, slice_s: float, schedule: str, arms: Sequence[ArmSpec]) -> tuple[int | None, float]:
    """Return the number of slices of the window that is given, None without one, and their length."""
    if run.checkpoints is not None:
        return rounds_for(run.checkpoints, likely_timeout_s(arms))
    if run.window_s is not None:
        return whole_rounds(run.window_s, slice_s, schedule), slice_s
    return run.rounds, slice_s


WARM_UP_S_MAX = 30.0
"""Longest warm-up of a study file that has a window and no warm-up."""


def _warmup(file: StudyFile, likely_s: float, slice_s: float) -> dict[str, Any]:
    """Return the fields of the warm-up; without a time in the file it ends at steady state."""
    run = file.run
    if run.warmup_s is not None or file.warmup_workload is not None:
        most_s = likely_s if run.warmup_s is None else run.warmup_s
        return {"warmup_s": most_s, "warmup_min_s": run.warmup_min_s}
    found = adaptive_warm_up(likely_s, likely_s, slice_s)
    least_s = found.least_s if run.warmup_min_s is None else run.warmup_min_s
    return {"warmup_s": max(found.most_s, least_s or 0.0), "warmup_min_s": least_s}


def _initdb(initdb: Initdb) -> dict[str, Any]:
    size = initdb.wal_segment_bytes
    return {"checksums": initdb.checksums, "wal_segment_mb": None if size is None else size // 2**20}


def _located(
    file: StudyFile, levels: Levels, error: ValidationError, within: tuple[str, ...] = ()
) -> StudyFileError:
    """Return the first validation error of the plan, or of a part of it, with its place in the file."""
    first = error.errors()[0]
    message = plain_message(first["msg"])
    words = file.as_keys(message)
    loc = (*within, *first["loc"])
    if not loc or message.startswith("--"):
        return StudyFileError((), words)
    names = [FILE_KEYS.get(str(part), str(part)) for part in loc]
    for name in reversed(names):
        deeper = loc[names.index(name) + 1 :]
        if name in levels:
            return StudyFileError(("factors", name, levels[name].place, *deeper), words)
        if name in file.workload and name != "kind":
            return StudyFileError(("workload", name, *deeper), words)
        if key := key_of(name):
            return StudyFileError(key, words)
    missing = f"{names[-1]}: " if first["type"] == "missing" else ""
    return StudyFileError(("workload",), f"{missing}{words}")
