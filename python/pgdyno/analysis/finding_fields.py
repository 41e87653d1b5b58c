"""How the fields of findings appear in JSON.

The JSON of a report is made of the findings themselves: their fields, and the properties that are marked with
``in_json``. The name of a field is its key. Docstrings and ``about`` are descriptions in the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, GetCoreSchemaHandler, PlainSerializer, TypeAdapter, computed_field

from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.results.records import Arm

if TYPE_CHECKING:
    in_json = property
else:

    def in_json(get: Callable[[Any], Any]) -> Any:
        """Make a property that is a key of the JSON. Its docstring is the description."""
        return computed_field(property(get))


def about(text: str) -> Any:
    """Describe a field in the JSON Schema."""
    return Field(description=text)


@dataclass(frozen=True)
class ShownAs:
    """Show a field as the result of a function on it. ``kind`` is the type of the result."""

    kind: Any
    made_of: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, _source: object, handler: GetCoreSchemaHandler) -> Any:
        """Return the schema, without one of the type of the field, which JSON does not have."""
        shown = PlainSerializer(self.made_of, return_type=self.kind)
        return shown.__get_pydantic_core_schema__(Any, handler)


@dataclass(frozen=True)
class Key:
    """A key that a feature adds to JSON. ``kind`` is the type of its value."""

    name: str
    kind: Any
    about: str


def shown(kind: Any, value: object) -> Any:
    """Return a value of a type as JSON has it."""
    return _codec(kind).dump_python(value, warnings=False)


@cache
def _codec(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


Of = TypeVar("Of")

Hidden = Annotated[Of, Field(exclude=True), ShownAs(Any, bool)]
"""A field that JSON does not have: raw data, series, and what only other findings need."""

ArmName = Annotated[Arm, ShownAs(str, attrgetter("name"))]

MetricKey = Annotated[Metric, ShownAs(str, attrgetter("key"))]

Length = Annotated[Of, ShownAs(int, len)]

ByArm = Annotated[Mapping[int, Of], about("By the index of the arm.")]
