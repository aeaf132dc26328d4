//! `EchoRefusals`: which echo requests to groups and broadcast addresses are ignored.
//!
//! Set once from the configuration (`build.rs`); read by `echo.rs`. Plain data.

/// Which group and broadcast echo requests are ignored, named after Linux's sysctls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EchoRefusals {
    /// `net.ipv4.icmp_echo_ignore_broadcasts`: broadcast addresses and IPv4 groups.
    pub(crate) broadcasts: bool,
    /// `net.ipv6.icmp.echo_ignore_multicast`: IPv6 groups.
    pub(crate) multicast_v6: bool,
}
