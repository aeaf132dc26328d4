//! The table alone: identifiers, allowed sources of replies, what is kept.

use floodwall_base::Randomness;
use floodwall_packet::PoolConfig;

use super::*;

fn pool() -> Pool {
    Pool::new(&PoolConfig { small: 64, frames: 128, ..Default::default() }).unwrap()
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn addr(family: Family, host: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, host).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

/// An IP packet with an echo reply, its layers set; only what `recv` reads is right.
fn reply(pool: &Pool, family: Family, sequence: u16, body: &[u8]) -> PacketBuf {
    let mut bytes = match family {
        Family::V4 => {
            [&[0x45, 0, 0, 0, 0, 0, 0, 0, 61, 1, 0, 0, 10, 0, 0, 2][..], &[10, 0, 0, 1]].concat()
        }
        Family::V6 => vec![0x60, 0, 0, 0, 0, 0, 58, 61],
    };
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (addr(family, 2), addr(family, 1)) {
        bytes.extend(from.octets());
        bytes.extend(to.octets());
    }
    let l4 = bytes.len();
    bytes.extend([0; 6]);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(body);
    let mut packet = pool.packet_from(&bytes).unwrap();
    packet.set_layers(0, l4, l4);
    packet
}

fn asked(sockets: &mut PingSockets, pool: &Pool, id: PingId, family: Family, host: u8) {
    let ends = (addr(family, 1), addr(family, host));
    sockets.request(pool, id, ends, 1, b"?").unwrap();
}

#[test]
fn an_identifier_belongs_to_one_socket_of_a_family_until_it_is_closed() {
    let mut random = Randomness::from_number(1);
    let mut sockets = PingSockets::new(4);
    for family in FAMILIES {
        let wanted = PingSettings { identifier: Some(7), ..PingSettings::new(family) };
        let id = sockets.open(wanted, &mut random.secret).unwrap();
        let again = sockets.open(wanted, &mut random.secret);
        assert_eq!(again, Err(PingOpenError::IdentifierInUse(7)));
        sockets.close(id);
        assert_eq!(sockets.identifier(id), Err(PingClosed));
        let next = sockets.open(wanted, &mut random.secret).unwrap();
        assert_ne!(next, id, "the place has another owner now");
        sockets.close(id);
        assert_eq!(sockets.identifier(next), Ok(7), "an old name closes nothing");
    }
    let any = PingSettings::new(Family::V4);
    for _ in 2..4 {
        sockets.open(any, &mut random.secret).unwrap();
    }
    assert_eq!(sockets.open(any, &mut random.secret), Err(PingOpenError::TooMany(4)));
    assert_eq!(sockets.open_sockets(), 4);
}

#[test]
fn a_reply_is_taken_from_a_host_that_was_pinged_and_from_no_other() {
    let (pool, mut random) = (pool(), Randomness::from_number(1));
    for family in FAMILIES {
        let mut sockets = PingSockets::new(2);
        let id = sockets.open(PingSettings::new(family), &mut random.secret).unwrap();
        let identifier = sockets.identifier(id).unwrap();
        let heard = |sockets: &mut PingSockets, host, identifier| {
            sockets.reply(addr(family, host), identifier, reply(&pool, family, 1, b"?")).is_ok()
        };
        assert!(!heard(&mut sockets, 2, identifier), "nothing was sent yet");
        asked(&mut sockets, &pool, id, family, 2);
        assert!(heard(&mut sockets, 2, identifier));
        assert!(!heard(&mut sockets, 3, identifier) && !heard(&mut sockets, 2, identifier ^ 1));
        // One peer more than are remembered.
        for host in 2..10 {
            asked(&mut sockets, &pool, id, family, host);
        }
        assert!(!heard(&mut sockets, 99, identifier));
        asked(&mut sockets, &pool, id, family, 10);
        assert!(heard(&mut sockets, 99, identifier), "too many to remember: any source");
    }
}

#[test]
fn a_reply_has_its_source_sequence_hop_limit_and_length() {
    let (pool, mut random) = (pool(), Randomness::from_number(1));
    for family in FAMILIES {
        let mut sockets = PingSockets::new(1);
        let id = sockets.open(PingSettings::new(family), &mut random.secret).unwrap();
        let identifier = sockets.identifier(id).unwrap();
        asked(&mut sockets, &pool, id, family, 2);
        for body in [&b""[..], b"four", &[7; 3000]] {
            sockets.reply(addr(family, 2), identifier, reply(&pool, family, 9, body)).unwrap();
            let mut out = [0; 1000];
            let got = sockets.recv(id, &mut out).unwrap();
            let len = body.len().min(1000);
            assert_eq!(
                (got.len, &out[..len], got.truncated),
                (len, &body[..len], len < body.len())
            );
            assert_eq!((got.from, got.to), (addr(family, 2), addr(family, 1)));
            assert_eq!((got.sequence, got.hop_limit), (9, 61));
        }
        assert_eq!(sockets.recv(id, &mut []), Err(PingRecvError::WouldBlock));
    }
}

#[test]
fn a_flood_of_replies_stays_within_the_sockets_limit() {
    let (pool, mut random) = (pool(), Randomness::from_number(1));
    let mut sockets = PingSockets::new(1);
    let size = u64::from(reply(&pool, Family::V4, 1, b"?").true_size());
    let settings = PingSettings { receive_bytes: 5 * size, ..PingSettings::new(Family::V4) };
    let id = sockets.open(settings, &mut random.secret).unwrap();
    let identifier = sockets.identifier(id).unwrap();
    asked(&mut sockets, &pool, id, Family::V4, 2);
    let free = pool.available();
    for n in 0..1000 {
        let taken =
            sockets.reply(addr(Family::V4, 2), identifier, reply(&pool, Family::V4, n, b"?"));
        assert_eq!(taken.map_err(|(_, reason)| reason).is_ok(), n < 5);
    }
    assert_eq!(sockets.drops(id), Ok(995));
    sockets.close(id);
    assert_eq!(pool.available(), free, "what waited is freed with the socket");
}
