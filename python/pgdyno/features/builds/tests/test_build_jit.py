"""Builds with LLVM for arms with ``jit = on``."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_studies import make_study
from fake_sources import configured, write_clone
from pgdyno.errors import BuildError
from pgdyno.features.builds.jit import with_llvm
from pgdyno.features.builds.source import SourceBuilds, require_llvm
from pgdyno.study.arm_spec import parse_arms


@pytest.mark.parametrize(
    ("arms", "options"),
    [
        (["git:a,jit=on", "git:b"], ["--with-llvm", "--with-llvm"]),
        (["git:a,jit=on", "18"], ["--with-llvm", ""]),
        (
            ["git:a,jit=on,build_options=-Dlz4=enabled", "git:b"],
            ["-Dlz4=enabled -Dllvm=enabled", "--with-llvm"],
        ),
        (["git:a,jit=on,build_options=CC=clang", "git:b"], ["CC=clang --with-llvm", "--with-llvm"]),
        (["git:a,jit=on", "git:b,build_options=--without-llvm"], ["", "--without-llvm"]),
        (["git:a,jit=off", "git:b"], ["", ""]),
        (["18,jit=on", "git:b"], ["", ""]),
    ],
)
def test_commits_are_built_with_llvm_if_one_of_them_has_jit(arms: list[str], options: list[str]) -> None:
    study = with_llvm(make_study(arms=parse_arms(arms)))
    assert [arm.build_options for arm in study.arms] == options
    assert with_llvm(study) == study  # as a resume asks again


def installed(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("programs", "options", "missing"),
    [
        ([], ["--with-llvm"], "llvm-config"),
        (["llvm-config"], ["-Dllvm=enabled"], "clang"),
        (["llvm-config-14", "clang-14"], ["--with-llvm"], ""),
        (["clang"], ["--with-llvm", "LLVM_CONFIG=/opt/llvm/bin/llvm-config"], ""),
        ([], ["--with-lz4", "--without-llvm"], ""),
    ],
)
def test_missing_programs_of_llvm_are_named_with_the_remedy(
    programs: list[str], options: list[str], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed(tmp_path / "bin", *programs)))
    if not missing:
        return require_llvm(options)
    with pytest.raises(
        BuildError, match=rf"{missing} is not installed, .*: install it \(Debian: apt-get install"
    ):
        require_llvm(options)
    return None


def test_a_build_without_these_programs_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = write_clone(tmp_path / "postgres", ("18.1",))
    monkeypatch.setattr("pgdyno.features.builds.source.LLVM_PROGRAMS", {"clang-of-nobody": "CLANG"})
    with pytest.raises(BuildError, match="clang-of-nobody is not installed"):
        SourceBuilds(tmp_path / "builds", print).of_spec(f"git:{clone},build_options=--with-llvm")
    assert configured(clone) == 0
