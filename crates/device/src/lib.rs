//! The outside: memory wire, TUN, TAP, AF_PACKET, captures, faults.
