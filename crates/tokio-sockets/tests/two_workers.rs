//! A host of two workers: a socket receives from both, one at every port included.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use floodwall_device::pair;
use floodwall_tokio_sockets::{Network, UdpSocket};
use tokio::time::timeout;

#[tokio::test]
async fn a_host_of_two_workers_serves_sockets_of_its_own() {
    let (here, _other) = pair(64);
    let network = Network::builder().attach(here).address("198.18.0.1/24").workers(2);
    let network = timeout(Duration::from_secs(20), network.start()).await.unwrap().unwrap();
    let bind = || timeout(Duration::from_secs(20), UdpSocket::bind(&network, "127.0.0.1:0"));
    let (a, b) = (bind().await.unwrap().unwrap(), bind().await.unwrap().unwrap());
    let to = b.local_addr().unwrap();
    for n in 0..100_u32 {
        a.send_to(&n.to_be_bytes(), to).await.unwrap();
        let mut room = [0; 8];
        let heard = timeout(Duration::from_secs(20), b.recv_from(&mut room)).await.unwrap();
        assert_eq!(heard.unwrap(), (4, a.local_addr().unwrap()));
        assert_eq!(room[..4], n.to_be_bytes());
    }
}

/// A host that accepts any destination, on two workers, and one that sends all packets there.
async fn relay_and_client() -> (Network, Network) {
    let (here, there) = pair(256);
    let relay = Network::builder().attach(here).any_destination(true).workers(2);
    let relay = relay.address("198.18.0.1/24").address("fd00::1/64").start();
    let client = Network::builder().attach(there).address("198.18.0.2/24").address("fd00::2/64");
    let client = client.gateway("198.18.0.1").gateway("fd00::1").start();
    (soon(relay).await.unwrap(), soon(client).await.unwrap())
}

async fn soon<F: Future>(what: F) -> F::Output {
    timeout(Duration::from_secs(20), what).await.unwrap()
}

#[tokio::test]
async fn a_socket_at_every_port_answers_from_where_each_datagram_wanted_to_go() {
    let (relay, client) = relay_and_client().await;
    let every = soon(UdpSocket::bind_every(&relay)).await.unwrap();
    let again = soon(UdpSocket::bind_every(&relay)).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
    let mut room = [0; 64];
    for (any, anywhere) in [("0.0.0.0:0", "203.0.113.7"), ("[::]:0", "2001:db8:7::7")] {
        let to = |port| SocketAddr::new(anywhere.parse().unwrap(), port);
        // Many flows, which both workers own.
        for n in 1..40_u16 {
            let socket = soon(UdpSocket::bind(&client, any)).await.unwrap();
            socket.connect(to(n)).await.unwrap();
            socket.send(&n.to_be_bytes()).await.unwrap();
            let received = soon(every.receive(&mut room)).await.unwrap();
            assert_eq!((received.to, &room[..2]), (to(n), &n.to_be_bytes()[..]));
            // From an IPv4 peer as `recv_from` has it: mapped, at a socket of both families.
            let from = SocketAddr::new(received.from.ip().to_canonical(), received.from.port());
            assert_eq!(from, socket.local_addr().unwrap());
            // A connected socket receives from its peer only.
            every.reply(b"reply", &received).await.unwrap();
            assert_eq!(soon(socket.recv(&mut room)).await.unwrap(), 5);
            every.send_from(b"other", to(n + 1), received.from).await.unwrap();
            every.try_send_from(b"again", to(n), received.from).unwrap();
            assert_eq!(soon(socket.recv(&mut room)).await.unwrap(), 5);
            assert_eq!(&room[..5], b"again");
        }
        let nowhere = to(9);
        let refused = every.send_to(b"x", nowhere).await.unwrap_err().kind();
        assert_eq!(refused, ErrorKind::InvalidInput, "it has no port of its own");
        let own = soon(UdpSocket::bind(&relay, any)).await.unwrap();
        let wrong = SocketAddr::new(own.local_addr().unwrap().ip(), 9);
        let refused = own.send_from(b"x", wrong, nowhere).await.unwrap_err().kind();
        assert_eq!(refused, ErrorKind::InvalidInput, "that port is not its own");
    }
}

#[tokio::test]
async fn a_socket_of_a_port_comes_before_the_one_of_every_port() {
    let (relay, client) = relay_and_client().await;
    let every = soon(UdpSocket::bind_every(&relay)).await.unwrap();
    let dns = soon(UdpSocket::bind(&relay, "[::]:53")).await.unwrap();
    let mut room = [0; 64];
    for (any, anywhere) in [("0.0.0.0:0", "203.0.113.7"), ("[::]:0", "2001:db8:7::7")] {
        let socket = soon(UdpSocket::bind(&client, any)).await.unwrap();
        for (port, hears) in [(53, &dns), (54, &every)] {
            let to = SocketAddr::new(anywhere.parse().unwrap(), port);
            socket.send_to(b"query", to).await.unwrap();
            assert_eq!(soon(hears.receive(&mut room)).await.unwrap().to, to);
        }
    }
}
