//! A host of two workers: a socket hears what both deliver.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

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
