//! What a program at the interface needs to make and open the same cookies.
//!
//! Asked by the stack on behalf of a device with a program that answers SYNs before they cost a
//! turn of the worker (crate `bpf`). Invariant: the keys leave this process only for the kernel
//! that runs that program, which root alone can read.

use floodwall_base::Instant;

use crate::listener::ListenerId;
use crate::moment::{CookieEpoch, CookieMoment};
use crate::settings::{CookiePolicy, ListenSettings};
use crate::syn_cache::SynCache;

/// The keys of the last, the present and the next two epochs, and that of the hash by which our
/// timestamps are shifted for each flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InterfaceKeys {
    /// The present epoch.
    pub epoch: CookieEpoch,
    /// When the next epoch begins, by the monotonic clock.
    pub until: Instant,
    /// Keys of SipHash-2-4: of the last epoch, the present, the next, and the one after.
    pub keys: [(u64, u64); 4],
    /// The key of SipHash-1-3.
    pub clock: (u64, u64),
}

impl core::fmt::Debug for InterfaceKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InterfaceKeys").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl SynCache {
    /// Whether a program at the interface answers SYNs with cookies of ours and lets through ACKs
    /// that carry one. While it does, gates are open, as an ACK that reaches us has been opened
    /// there; and such an ACK is recognized as of an established flow without a note of its SYN.
    pub const fn set_interface_answers(&mut self, answers: bool) {
        self.interface_answers = answers;
    }

    /// What a listener answers SYNs with; `None` where it is gone, or never answers by cookie.
    #[must_use]
    pub fn offer_of(&self, listener: ListenerId) -> Option<ListenSettings> {
        self.settings_of(listener).filter(|settings| settings.cookies != CookiePolicy::Never)
    }

    /// The keys in force at `at`, in the epoch that ends at `until`. Asked again when the epoch has
    /// turned and after [`SynCache::reload`]. Costs eight hashes.
    #[must_use]
    pub fn interface_keys(&self, at: CookieMoment, until: Instant) -> InterfaceKeys {
        let key = |ahead: u64| self.key_of(CookieEpoch(at.epoch.before().0.wrapping_add(ahead)));
        InterfaceKeys {
            epoch: at.epoch,
            until,
            keys: [key(0), key(1), key(2), key(3)],
            clock: self.clock_key(),
        }
    }
}
