"""LoadAwareScheduling: keep pods off nodes whose measured usage is high, and prefer those with the most room.

A node's report is minutes old while pods arrive by the second, so what is *measured* is completed by an *estimate* for
every pod that the report cannot contain yet. `LoadAwareLedger` keeps both as arrays over nodes; `LoadState` is its
copy for one cycle. The package leaves to its caller when a pod counts (`assignment`), and where the objects come from.

Source: spec/scheduler-core.md 3; upstream pkg/scheduler/plugins/loadaware.
"""

from services.scheduler.plugins.load_aware_scheduling.args import BadArgs, LoadAwareArgs, read_args
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadAwareLedger
from services.scheduler.plugins.load_aware_scheduling.plugin_state import LoadState

__all__ = ["BadArgs", "LoadAwareArgs", "LoadAwareLedger", "LoadState", "read_args"]
