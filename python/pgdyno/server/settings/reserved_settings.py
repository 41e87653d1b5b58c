"""Settings reserved for pgdyno, and those that it always sets, so that every arm logs alike."""

from __future__ import annotations

from collections.abc import Mapping

from pgdyno.errors import UsageError

_SOCKET = "servers listen on a private Unix socket only"
_LOG = "the server's log is a part of the evidence, and pgdyno must be able to read it"
_PLACE = "pgdyno decides where a server's files lie"

OWNED: Mapping[str, str] = {
    "listen_addresses": _SOCKET,
    "port": _SOCKET,
    "unix_socket_directories": _SOCKET,
    "unix_socket_permissions": _SOCKET,
    "unix_socket_group": _SOCKET,
    "data_directory": _PLACE,
    "config_file": _PLACE,
    "hba_file": _PLACE,
    "ident_file": _PLACE,
    "external_pid_file": _PLACE,
    "logging_collector": _LOG,
    "log_destination": _LOG,
    "log_directory": _LOG,
    "log_filename": _LOG,
    "log_line_prefix": _LOG,
    "log_timezone": _LOG,
}

# Checkpoints and autovacuum runs must be in the log of every version, as they explain the dips of a run; only
# from 15 on they are by default. Written before the arm's settings, so that an arm may still change these
# two.
BASE: Mapping[str, str] = {
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "log_checkpoints": "on",
    "log_autovacuum_min_duration": "0",
}


def refuse_owned(settings: Mapping[str, str]) -> None:
    """Raises UsageError when one of the settings is pgdyno's."""
    for name in settings:
        reason = OWNED.get(name.lower())
        if reason:
            raise UsageError(f"{name} cannot be set: {reason}")


def config_text(settings: Mapping[str, str]) -> str:
    """The lines of a configuration file. Raises UsageError: a value with a line break or a zero byte."""
    lines = ["# written by pgdyno at every start"]
    for name, value in settings.items():
        if any(character in value for character in "\n\r\0"):
            raise UsageError(f"{name}: a setting's value cannot hold a line break")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"
