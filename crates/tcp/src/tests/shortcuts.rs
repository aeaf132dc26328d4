//! What shortcuts leave as it is: a flow that was looked up in vain is found once it has a
//! connection, and a connection with nothing in flight has no loss timer.

use floodwall_wire::tcp_options::TcpOptionSet;

use super::peer::{A, Peer, put};
use crate::TcpSettings;
use crate::timer::TimerKind;

#[test]
fn a_flow_that_was_unknown_is_found_by_its_hash_once_it_has_a_connection() {
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let flow = peer.flow();
        let tcp = &mut peer.host.tcp;
        let unknown = tcp.find_by_hash(&flow);
        assert_eq!(unknown, Err(tcp.hash(&flow)));
        assert_eq!(tcp.find_by_hash(&flow), unknown);
        let id = peer.handshake(listener, TcpOptionSet::NONE);
        let tcp = &mut peer.host.tcp;
        assert_eq!(tcp.find_by_hash(&flow), Ok(id.index() as u32));
    }
}

#[test]
fn a_connection_with_nothing_in_flight_has_no_loss_timer() {
    for v6 in [false, true] {
        let settings = TcpSettings::default();
        let (mut peer, id) = Peer::connected(v6, &settings, TcpOptionSet::NONE);
        let has_one =
            |peer: &Peer| peer.host.tcp.named(id).unwrap().timers.is_set(TimerKind::Retransmit);
        assert!(!has_one(&peer));
        assert_eq!(peer.write(id, b"hello").len(), 1);
        assert!(has_one(&peer));
        assert!(peer.give(put(A, 1, 6)).is_empty());
        assert!(!has_one(&peer));
    }
}
