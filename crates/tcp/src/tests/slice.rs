//! Connect, exchange, close: the ordinary course of a connection, in both families.

use core::time::Duration;

use super::cable::{Cable, FRAMES};
use crate::{RecvError, TcpSettings, TcpState};

/// Reads all available data; true at end of stream.
fn drain(cable: &mut Cable, host: usize, id: crate::ConnectionId, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match cable.recv(host, id, &mut buffer) {
            Ok(0) => return true,
            Ok(n) => into.extend_from_slice(&buffer[..n]),
            Err(RecvError::WouldBlock) => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_acknowledgment_that_left_with_data_is_no_reason_to_wake() {
    for v6 in [false, true] {
        let mut cable = Cable::new(1);
        let settings = TcpSettings::default();
        let listener = cable.listen(1, 80, &settings);
        let client = cable.connect(v6, 80, &settings);
        cable.run(Duration::from_millis(100));
        let server = cable.accept(1, listener).unwrap();
        // The timers of the handshake have expired.
        cable.run(Duration::from_secs(10));
        let wakes = |cable: &Cable| cable.hosts[1].tcp.deadline().map(|at| at - cable.now);
        let ask = |cable: &mut Cable| {
            cable.write(0, client, b"question");
            let mut heard = vec![];
            while heard.is_empty() {
                let until = cable.now + Duration::from_millis(50);
                assert!(cable.step(until));
                drain(cable, 1, server, &mut heard);
            }
        };
        // A program that has answered is expected to answer again.
        ask(&mut cable);
        cable.write(1, server, b"answer");
        cable.run(Duration::from_secs(10));
        ask(&mut cable);
        assert!(wakes(&cable).is_some_and(|wait| wait <= Duration::from_millis(40)));
        cable.write(1, server, b"answer");
        cable.flush();
        // Only the timer of the answer is left.
        assert!(wakes(&cable).is_some_and(|wait| wait >= Duration::from_millis(150)));
    }
}

#[test]
fn streams_cross_both_ways_and_connections_close_in_order_in_both_families() {
    for v6 in [false, true] {
        let mut cable = Cable::new(1);
        let settings = TcpSettings::default();
        let listener = cable.listen(1, 80, &settings);
        let client = cable.connect(v6, 80, &settings);
        cable.run(Duration::from_millis(100));
        assert_eq!(cable.hosts[0].tcp.state(client), Ok(TcpState::Established));
        let server = cable.accept(1, listener).unwrap();
        assert_eq!(cable.hosts[1].tcp.state(server), Ok(TcpState::Established));

        let streams: [Vec<u8>; 2] =
            [17, 91].map(|m| (0..300_000_u32).map(|n| ((n * m) >> 4) as u8).collect());
        let (mut written, mut read) = ([0; 2], [vec![], vec![]]);
        let ids = [client, server];
        for _ in 0..10_000 {
            for host in 0..2 {
                let rest = &streams[host][written[host]..];
                if !rest.is_empty() {
                    written[host] += cable.write(host, ids[host], &rest[..rest.len().min(9000)]);
                }
                drain(&mut cable, host, ids[host], &mut read[1 - host]);
            }
            if read[0].len() == streams[0].len() && read[1].len() == streams[1].len() {
                break;
            }
            cable.run(Duration::from_millis(1));
        }
        assert!(read[0] == streams[0] && read[1] == streams[1], "{:?}", read.map(|r| r.len()));

        cable.shutdown(0, client);
        cable.run(Duration::from_millis(100));
        assert_eq!(cable.hosts[0].tcp.state(client), Ok(TcpState::FinWait2));
        assert_eq!(cable.hosts[1].tcp.state(server), Ok(TcpState::CloseWait));
        assert!(drain(&mut cable, 1, server, &mut vec![]));
        // Half-closed: the other direction still works.
        assert_eq!(cable.write(1, server, b"last bytes"), 10);
        cable.run(Duration::from_millis(100));
        let mut last = vec![];
        assert!(!drain(&mut cable, 0, client, &mut last));
        assert_eq!(last, b"last bytes");
        cable.close(1, server);
        cable.run(Duration::from_millis(100));
        assert!(drain(&mut cable, 0, client, &mut last));
        cable.close(0, client);
        assert!(cable.hosts[1].tcp.is_empty());
        cable.run(Duration::from_secs(61));
        assert!(cable.hosts[0].tcp.is_empty(), "TIME-WAIT is over");
        for host in &cable.hosts {
            let free = host.pool.available();
            assert_eq!((free.frames, free.small, free.references), (FRAMES, 4096, 8192));
        }
    }
}
