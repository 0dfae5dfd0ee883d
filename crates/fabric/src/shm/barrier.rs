//! Memory barriers that others are made to pass.

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Registers this process for expedited barriers, which take microseconds. Returns whether the
/// system does that. The first time may take 10 ms, where the process has several threads.
pub(super) fn register_for_barriers() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Makes threads pass a memory barrier, and passes one itself: those of processes that registered,
/// within microseconds, or every thread of this machine, within milliseconds. Returns whether the
/// system can do that.
pub(super) fn barrier(expedited: bool) -> bool {
    let command =
        if expedited { MembarrierCommand::GlobalExpedited } else { MembarrierCommand::Global };
    membarrier_query().contains_command(command) && membarrier(command).is_ok()
}
