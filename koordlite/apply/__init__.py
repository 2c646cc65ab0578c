"""Plan → writes: journal first, step by step, and back again."""

from koordlite.apply.applier import Applier
from koordlite.apply.foreign import log_refused
from koordlite.apply.restore import log as log_restored
from koordlite.apply.restore import restore, undo_list
from koordlite.apply.unlisted import entries as unlisted_entries

__all__ = ["Applier", "log_refused", "log_restored", "restore", "undo_list", "unlisted_entries"]
