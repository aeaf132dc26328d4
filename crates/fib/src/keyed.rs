//! `Keyed`: how the writer's maps hash what somebody else may have chosen.

use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// SipHash with a secret in front.
#[derive(Clone, Copy)]
pub(crate) struct Keyed(pub(crate) u64);

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}
