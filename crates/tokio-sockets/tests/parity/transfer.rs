//! Sent data arrives: whole, in order, with its sender's address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Ip, Place, never, soon};

/// Bytes that show the position of a gap.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ len as u8).collect()
}

/// The largest payload of a family.
pub(crate) fn largest(ip: Ip) -> usize {
    match ip {
        Ip::V4 => 65_507,
        Ip::V6 => 65_527,
    }
}

pub(crate) async fn a_datagram_goes_there_and_its_answer_comes_back<P: Place>(place: Arc<P>) {
    let (a, b) = place.two().await;
    let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert_eq!(a.send_to(b"a question", at_b).await.unwrap(), 10);
    let mut room = [0; 100];
    assert_eq!(soon(b.recv_from(&mut room)).await.unwrap(), (10, at_a));
    assert_eq!(&room[..10], b"a question");
    assert_eq!(b.send_to(b"an answer", at_a).await.unwrap(), 9);
    assert_eq!(soon(a.recv_from(&mut room)).await.unwrap(), (9, at_b));
    assert_eq!(&room[..9], b"an answer");
}

pub(crate) async fn datagrams_of_every_kind_of_size_arrive_whole<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let mut room = vec![0; 70_000];
    let most = largest(place.ip());
    for len in [1, 2, 255, 256, 1452, 1472, 1473, 2048, 9000, 32_768, most - 1, most] {
        let sent = payload(len);
        assert_eq!(a.send(&sent).await.unwrap(), len);
        let received = soon(b.recv(&mut room)).await.unwrap();
        assert_eq!(received, len);
        assert!(room[..received] == sent[..], "{len} bytes arrived altered");
    }
}

pub(crate) async fn a_datagram_without_payload_is_one<P: Place>(place: Arc<P>) {
    let (a, b) = place.two().await;
    let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert_eq!(a.send_to(&[], at_b).await.unwrap(), 0);
    assert_eq!(a.send_to(&[7], at_b).await.unwrap(), 1);
    let mut room = [0; 4];
    assert_eq!(soon(b.recv_from(&mut room)).await.unwrap(), (0, at_a));
    assert_eq!(soon(b.recv_from(&mut room)).await.unwrap(), (1, at_a));
}

pub(crate) async fn what_is_too_large_for_the_buffer_is_cut_and_the_next_is_whole<P: Place>(
    place: Arc<P>,
) {
    let (a, b) = place.connected().await;
    a.send(&payload(1000)).await.unwrap();
    a.send(b"next").await.unwrap();
    let mut room = [0; 10];
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 10);
    assert_eq!(room[..], payload(1000)[..10]);
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
    assert_eq!(&room[..4], b"next");
}

pub(crate) async fn an_empty_buffer_takes_a_datagram<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    a.send(b"lost").await.unwrap();
    a.send(b"kept").await.unwrap();
    assert_eq!(soon(b.recv(&mut [])).await.unwrap(), 0);
    let mut room = [0; 10];
    assert_eq!(soon(b.recv(&mut room)).await.unwrap(), 4);
    assert_eq!(&room[..4], b"kept");
}

pub(crate) async fn datagrams_of_one_sender_keep_their_order<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let mut room = [0; 8];
    for burst in 0..20_u32 {
        for n in 0..50 {
            a.send(&(burst * 50 + n).to_be_bytes()).await.unwrap();
        }
        for n in 0..50 {
            let len = soon(b.recv(&mut room)).await.unwrap();
            assert_eq!(room[..len], (burst * 50 + n).to_be_bytes());
        }
    }
}

pub(crate) async fn what_is_peeked_at_stays<P: Place>(place: Arc<P>) {
    let (a, b) = place.two().await;
    let (at_a, at_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    a.send_to(b"first", at_b).await.unwrap();
    a.send_to(b"second", at_b).await.unwrap();
    let mut room = [0; 10];
    assert_eq!(soon(b.peek_sender()).await.unwrap(), at_a);
    for _ in 0..2 {
        assert_eq!(soon(b.peek_from(&mut room)).await.unwrap(), (5, at_a));
        assert_eq!(&room[..5], b"first");
    }
    assert_eq!(soon(b.peek(&mut room[..2])).await.unwrap(), 2);
    assert_eq!(b.try_peek_from(&mut room).unwrap(), (5, at_a));
    assert_eq!(b.try_peek_sender().unwrap(), at_a);
    assert_eq!(soon(b.recv_from(&mut room)).await.unwrap(), (5, at_a));
    assert_eq!(soon(b.peek(&mut room)).await.unwrap(), 6);
    assert_eq!(soon(b.recv_from(&mut room)).await.unwrap(), (6, at_a));
    assert_eq!(&room[..6], b"second");
    never(b.peek(&mut room)).await;
}

pub(crate) async fn a_connected_socket_hears_its_peer_only<P: Place>(place: Arc<P>) {
    let (a, b) = place.two().await;
    let unknown = place.one_there().await;
    a.connect(b.local_addr().unwrap()).await.unwrap();
    assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
    let at_a = a.local_addr().unwrap();
    unknown.send_to(b"other", at_a).await.unwrap();
    b.send_to(b"answer", at_a).await.unwrap();
    let mut room = [0; 10];
    assert_eq!(soon(a.recv_from(&mut room)).await.unwrap(), (6, b.local_addr().unwrap()));
    never(a.recv(&mut room)).await;
}

pub(crate) async fn a_connected_socket_may_send_to_another<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let other = place.one_there().await;
    a.send_to(b"elsewhere", other.local_addr().unwrap()).await.unwrap();
    let mut room = [0; 10];
    let from = a.local_addr().unwrap();
    assert_eq!(soon(other.recv_from(&mut room)).await.unwrap(), (9, from));
    never(b.recv(&mut room)).await;
}

pub(crate) async fn a_socket_connects_anew<P: Place>(place: Arc<P>) {
    let (a, b) = place.connected().await;
    let other = place.one_there().await;
    a.connect(other.local_addr().unwrap()).await.unwrap();
    assert_eq!(a.peer_addr().unwrap(), other.local_addr().unwrap());
    a.send(b"to the new one").await.unwrap();
    let mut room = [0; 20];
    assert_eq!(soon(other.recv(&mut room)).await.unwrap(), 14);
    b.send(b"from the old one").await.unwrap();
    never(a.recv(&mut room)).await;
}

pub(crate) async fn a_socket_of_both_families_writes_ipv4_as_mapped<P: Place>(place: Arc<P>) {
    let any = place.bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
    assert_eq!(any.local_addr().unwrap().ip(), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let peer = place.one_there().await;
    let (at_any, at_peer) = (any.local_addr().unwrap().port(), peer.local_addr().unwrap());
    peer.send_to(b"hello", (place.here(), at_any).into()).await.unwrap();
    let mapped = match at_peer.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let at_peer = SocketAddr::from((mapped, at_peer.port()));
    let mut room = [0; 10];
    assert_eq!(soon(any.recv_from(&mut room)).await.unwrap(), (5, at_peer));
    any.send_to(b"and back", at_peer).await.unwrap();
    assert_eq!(soon(peer.recv_from(&mut room)).await.unwrap().0, 8);
}
