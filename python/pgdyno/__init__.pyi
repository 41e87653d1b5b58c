"""The Python API for type checkers and editors; ``__init__.py`` imports its objects on first use."""

from pgdyno.errors import PgdynoError as PgdynoError
from pgdyno.errors import UsageError as UsageError
from pgdyno.features.python_api.outcome import CrashResult as CrashResult
from pgdyno.features.python_api.outcome import Effect as Effect
from pgdyno.features.python_api.outcome import GateResult as GateResult
from pgdyno.features.python_api.outcome import Result as Result
from pgdyno.features.python_api.outcome import Run as Run
from pgdyno.features.python_api.outcome import open as open
from pgdyno.features.python_api.outcome import runs as runs
from pgdyno.features.python_api.requests import Arm as Arm
from pgdyno.features.python_api.requests import LinkBench as LinkBench
from pgdyno.features.python_api.requests import Pgbench as Pgbench
from pgdyno.features.python_api.requests import Sysbench as Sysbench
from pgdyno.features.python_api.requests import Tpcc as Tpcc
from pgdyno.features.python_api.requests import Workload as Workload
from pgdyno.features.python_api.studies import Study as Study
from pgdyno.features.python_api.studies import capacity as capacity
from pgdyno.features.python_api.studies import compare as compare
from pgdyno.features.python_api.studies import crash as crash
from pgdyno.features.python_api.studies import run as run
from pgdyno.features.python_api.studies import start as start

__version__: str
__all__: list[str]
