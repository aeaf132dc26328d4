//! What ARP packets do, and what our own look like.
