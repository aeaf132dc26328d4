//! The sender as a whole.

use super::*;

#[test]
fn a_connections_sender_stays_within_its_share_of_memory() {
    assert!(size_of::<Recovery>() <= 464, "{}", size_of::<Recovery>());
}
