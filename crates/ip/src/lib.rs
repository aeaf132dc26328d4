//! The network layer, IPv4 and IPv6.
