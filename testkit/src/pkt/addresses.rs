//! The two ends of a script: the TCP under test, and the script's own end.

/// Over IPv4.
pub(super) const V4: (&str, &str) = ("192.168.0.1", "192.0.2.1");
/// Over IPv6.
pub(super) const V6: (&str, &str) = ("fd3d:fa7b:d17d::1", "2001:db8::1");
