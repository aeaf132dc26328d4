//! `quinn` as a client beside `QuicRetryChallenge`: the client takes our Retry for a server's, and
//! what it sends then proves its source. No packet leaves the process.

#![forbid(unsafe_code)]
#![cfg(test)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use floodwall_base::HashKey;
use floodwall_udp::challenges::QuicRetryChallenge;
use floodwall_udp::{CHALLENGE_MAX, Challenge, Challenged, UnverifiedSource};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
};

/// A client of `quinn` that has begun to connect.
struct Client {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    server: SocketAddr,
    now: Instant,
}

impl Client {
    fn new(server: SocketAddr, version: u32) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let crypto = QuicClientConfig::try_from(tls).unwrap();
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.version(version);
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let now = Instant::now();
        let (handle, connection) = endpoint.connect(now, config, server, "localhost").unwrap();
        Self { endpoint, handle, connection, server, now }
    }

    /// The next datagram that it sends.
    fn sends(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let transmit = self.connection.poll_transmit(self.now, 1, &mut bytes)?;
        Some(bytes[..transmit.size].to_vec())
    }

    fn receives(&mut self, datagram: &[u8]) {
        let (now, mut buffer) = (self.now, Vec::new());
        let bytes = BytesMut::from(datagram);
        match self.endpoint.handle(now, self.server, None, None, bytes, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) if handle == self.handle => {
                self.connection.handle_event(event);
            }
            None => {}
            _ => panic!("it is of the one connection"),
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }
}

fn judge(from: SocketAddr, datagram: &[u8]) -> (Challenged, Vec<u8>) {
    let payload = &datagram[..datagram.len().min(CHALLENGE_MAX)];
    let now = floodwall_base::Instant::from_nanos(9_000_000_000);
    let source = UnverifiedSource { from, to: from, now, payload };
    let mut answer = vec![0; payload.len()];
    let judged = QuicRetryChallenge::new(HashKey::new(1, 2)).judge(&source, &mut answer);
    answer.truncate(if let Challenged::Answer(len) = judged { len } else { 0 });
    (judged, answer)
}

#[test]
fn quinn_takes_our_retry_and_proves_its_address_with_it() {
    for from in ["192.0.2.1:4433", "[2001:db8::1]:4433"] {
        let from = from.parse().unwrap();
        let mut client = Client::new("192.0.2.9:443".parse().unwrap(), 1);
        let first = client.sends().expect("an Initial");
        assert!(first.len() >= 1200);
        let (judged, retry) = judge(from, &first);
        assert_eq!(judged, Challenged::Answer(retry.len()));
        assert!((30..first.len()).contains(&retry.len()));

        // With one bit wrong it is nothing to a client.
        let mut misled = Client::new("192.0.2.9:443".parse().unwrap(), 1);
        let (_, mut wrong) = judge(from, &misled.sends().expect("an Initial"));
        *wrong.last_mut().unwrap() ^= 1;
        misled.receives(&wrong);
        assert!(misled.sends().is_none(), "a Retry with a wrong tag is not followed");

        client.receives(&retry);
        let again = client.sends().expect("another Initial");
        assert_eq!(judge(from, &again).0, Challenged::Proven);
        let other = "192.0.2.2:4433".parse().unwrap();
        assert!(matches!(judge(other, &again).0, Challenged::Answer(1..)), "of another address");
        while let Some(event) = client.connection.poll() {
            assert!(!matches!(event, Event::ConnectionLost { .. }), "{event:?}");
        }
    }
}
