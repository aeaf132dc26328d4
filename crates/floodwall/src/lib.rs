//! An IPv4/IPv6 network stack in user space that keeps its promises while it is being flooded.
