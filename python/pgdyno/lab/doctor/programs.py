"""The programs that measure and are measured: debug builds."""

from __future__ import annotations

from collections.abc import Mapping

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, unknown
from pgdyno.server.build_catalogue import Catalogue


def engine(profile: str | None) -> Checked:
    """``profile`` is that of its compilation."""
    about = "pgdyno's engine"
    if profile is None:
        return unknown(about, "it does not say how it was built")
    return disturbs(about, Code.DEBUG_ENGINE) if profile == "debug" else fine(about, f"a {profile} build")


def server(label: str, catalogue: Catalogue | None) -> Checked:
    """One that is here; what it says of itself is known once it has been measured."""
    about = f"server {label}"
    if catalogue is None:
        return unknown(about, "it was not asked yet how it was built")
    words = catalogue.compiled.get("CFLAGS", "").split()
    flags = [word for word in words if word in ("-O0", "-Og")]
    if catalogue.initial.get("debug_assertions") == "on":
        flags.append("--enable-cassert")
    if flags:
        return disturbs(about, Code.DEBUG_SERVER, arm=label, flags=" ".join(flags))
    return fine(about, "not built for debugging")


def servers(known: Mapping[str, Catalogue | None]) -> list[Checked]:
    """Those built for debugging, one by one; the others together."""
    every = [server(label, catalogue) for label, catalogue in known.items()]
    found = [one for one in every if one.caveat is not None]
    good = sum(one.found == "fine" for one in every)
    unasked = len(every) - len(found) - good
    about = "servers that are here"
    told = f"{good} not built for debugging" + (f", {unasked} not asked yet" if unasked else "")
    if not good and not found:
        return [unknown(about, f"{unasked} not asked yet how they were built" if unasked else "none")]
    return [*found, *([fine(about, told)] if good else [])]
