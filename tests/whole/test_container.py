"""The image and the Kubernetes Job: one user, files that exist, and a command that pgdyno accepts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pgdyno.cli.main import app
from pgdyno.study.arm_spec import parse_arm

ROOT = Path(__file__).parents[2]
IMAGE = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", (ROOT / "Containerfile").read_text()))
JOB: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "how-to" / "pgdyno-job.yaml").read_text())
POD = JOB["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def lines(word: str) -> list[str]:
    return re.findall(rf"(?m)^{word} +(.*)$", IMAGE)


def test_the_image_runs_pgdyno_as_the_unprivileged_user_of_the_job() -> None:
    (user,) = lines("USER")
    assert user == str(POD["securityContext"]["runAsUser"]) != "0"
    assert re.search(rf"useradd --uid {user} ", IMAGE)
    assert lines("ENTRYPOINT") == ['["pgdyno"]'] and lines("FROM")[-1] == "debian:bookworm-slim"
    # What follows runs as this user, so nothing is installed after it.
    assert "RUN" not in IMAGE[IMAGE.index("\nUSER ") :]


@pytest.mark.parametrize("command", lines("RUN"))
def test_the_commands_of_the_image_are_valid_shell(command: str) -> None:
    subprocess.run(["/bin/sh", "-n", "-c", command], check=True)


def test_the_job_compares_two_databases_with_options_that_exist_and_keeps_its_results() -> None:
    name, *arguments = CONTAINER["args"]
    arms = [parse_arm(text) for text in arguments if not text.startswith("--")]
    assert [arm.is_dsn for arm in arms] == [True, True]
    program: Any = typer.main.get_command(app)
    known = {option for one in program.commands[name].params for option in one.opts}
    given = dict(text.split("=", 1) for text in arguments if text.startswith("--"))
    assert set(given) <= known
    (mount,) = CONTAINER["volumeMounts"]
    assert Path(given["--evidence"]).parent == Path(mount["mountPath"]) == Path(lines("WORKDIR")[-1])
    assert mount["name"] in [volume["name"] for volume in POD["volumes"]]


def test_the_job_is_restricted_and_never_repeated() -> None:
    assert POD["securityContext"]["runAsNonRoot"] and not POD["automountServiceAccountToken"]
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (JOB["spec"]["backoffLimit"], POD["restartPolicy"]) == (0, "Never")
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]
