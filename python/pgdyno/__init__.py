"""pgdyno: a dynamometer for PostgreSQL."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return an object of the Python API: features provide it (``Feature.public``). Imported on first use."""
    from importlib import import_module  # noqa: PLC0415

    from pgdyno.cli.features import features, public  # noqa: PLC0415

    if name == "__all__":
        return ["__version__", *sorted(public())]
    if name not in public():
        raise AttributeError(f"module 'pgdyno' has no attribute {name!r}")
    features()
    module, _, of = public()[name].partition(":")
    return getattr(import_module(module), of)


def __dir__() -> object:
    return __getattr__("__all__")
