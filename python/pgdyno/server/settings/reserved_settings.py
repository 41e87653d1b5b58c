"""Settings reserved for pgdyno, and base settings of every arm, which give all servers the same log
format."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pgdyno.errors import UsageError
from pgdyno.study.settings_file import ARCHIVE_MODE, ARCHIVE_TARGETS, reason_to_skip

_SOCKET = "servers listen on a private Unix socket only"
_LOG = "pgdyno reads the server log and stores it in the results file"
_PLACE = "pgdyno chooses the location of server files"

RESERVED: Mapping[str, str] = {
    "listen_addresses": _SOCKET,
    "port": _SOCKET,
    "unix_socket_directories": _SOCKET,
    "unix_socket_permissions": _SOCKET,
    "unix_socket_group": _SOCKET,
    "tcp_keepalives_idle": _SOCKET,
    "tcp_keepalives_interval": _SOCKET,
    "tcp_keepalives_count": _SOCKET,
    "tcp_user_timeout": _SOCKET,
    "data_directory": _PLACE,
    "config_file": _PLACE,
    "hba_file": _PLACE,
    "ident_file": _PLACE,
    "hosts_file": _PLACE,
    "external_pid_file": _PLACE,
    "logging_collector": _LOG,
    "log_destination": _LOG,
    "log_directory": _LOG,
    "log_filename": _LOG,
    "log_line_prefix": _LOG,
    "log_timezone": _LOG,
}

# Checkpoints and autovacuum runs must be in the log of every version, because they explain dips. They are
# logged by default only from 15 on. Written before the settings of the arm, so that an arm can change these
# two.
BASE: Mapping[str, str] = {
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "log_checkpoints": "on",
    "log_autovacuum_min_duration": "0",
}
AUTOANALYZE_SINCE = 19
"""First version that logs automatic analyzes by a setting of their own."""


def base_settings(major: int) -> Mapping[str, str]:
    """Return the base settings for a server of that major version."""
    return {**BASE, "log_autoanalyze_min_duration": "0"} if major >= AUTOANALYZE_SINCE else BASE


def refuse_reserved(settings: Mapping[str, str]) -> None:
    """Raise UsageError if one of the settings is reserved for pgdyno."""
    for name in settings:
        reason = RESERVED.get(name.lower())
        if reason:
            raise UsageError(f"{name} cannot be set: {reason}")


def refused_from_file(name: str, named: Collection[str]) -> str:
    """Return why a setting of a settings file is skipped; empty if the arm has it.

    ``named``: lower-case names of the settings on the command line.
    """
    if name == ARCHIVE_MODE and any(target in named for target in ARCHIVE_TARGETS):
        return ""
    return RESERVED.get(name) or reason_to_skip(name)


def config_text(settings: Mapping[str, str]) -> str:
    """Return the text of a configuration file. Raises UsageError for a value with a line break or zero
    byte."""
    lines = ["# written by pgdyno at every start"]
    for name, value in settings.items():
        if any(character in value for character in "\n\r\0"):
            raise UsageError(f"{name}: the value of a setting cannot contain a line break or a zero byte")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"
