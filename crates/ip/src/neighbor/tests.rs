//! What the cache promises, in virtual time, for both families.
