//! Snapshots are filled from the control shard's stack and copied to a follower's.
//!
//! Called by `control/publish.rs` and `follower/catch_up.rs`.

use super::{TableSnapshot, copy_exceptions, copy_interfaces};
use crate::stack::Stack;

impl TableSnapshot {
    /// Becomes what `stack` has now. Parts of the same revision are left as they are.
    pub(in crate::shards) fn take_from(&mut self, stack: &Stack, interfaces_revision: u64) {
        if self.interfaces_revision != interfaces_revision {
            copy_interfaces(&mut self.interfaces, &stack.interfaces);
            self.interfaces_revision = interfaces_revision;
        }
        copy_exceptions(&mut self.exceptions_v4, &stack.v4.exceptions);
        copy_exceptions(&mut self.exceptions_v6, &stack.v6.exceptions);
        self.dhcp_asks = stack.control.dhcp.asks();
    }

    /// Gives `stack`, which has the interfaces of revision `has`, what is here.
    pub(in crate::shards) fn give_to(&self, stack: &mut Stack, has: u64) {
        if self.interfaces_revision != has {
            copy_interfaces(&mut stack.interfaces, &self.interfaces);
        }
        copy_exceptions(&mut stack.v4.exceptions, &self.exceptions_v4);
        copy_exceptions(&mut stack.v6.exceptions, &self.exceptions_v6);
    }
}
