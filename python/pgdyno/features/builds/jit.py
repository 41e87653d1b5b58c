"""LLVM in the builds of commits, if a study asks for JIT compilation."""

from __future__ import annotations

from pgdyno.features.builds.source import split_options
from pgdyno.measure.prepare import Preparation
from pgdyno.server.settings import parse_bool
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study


def with_llvm(study: Study, *_: object) -> Study:
    """Return the study, all of whose commits are built with LLVM if one of them has ``jit = on``.

    An option of one of them for LLVM prevents it: builds with and without LLVM may be compared.
    """
    commits = [arm for arm in study.arms if arm.is_git]
    asks = any(parse_bool(arm.known_settings.get("jit", "off")) for arm in commits)
    if not asks or any("llvm" in arm.build_options for arm in commits):
        return study
    return study.model_copy(update={"arms": tuple(_with_llvm(arm) for arm in study.arms)})


def _with_llvm(arm: ArmSpec) -> ArmSpec:
    if not arm.is_git:
        return arm
    is_meson = any(option.startswith("-D") for option in split_options(arm.build_options))
    options = f"{arm.build_options} {'-Dllvm=enabled' if is_meson else '--with-llvm'}".strip()
    return arm.model_copy(update={"build_options": options})


PREPARATION = Preparation(with_llvm)
