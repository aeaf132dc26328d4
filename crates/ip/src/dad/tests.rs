//! Duplicate address detection in virtual time, both families.
