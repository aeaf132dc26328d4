//! Initials in, Retries out.

use proptest::prelude::*;

use super::*;

const FROM: [&str; 2] = ["192.0.2.1:4433", "[2001:db8::1]:4433"];

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn initial(version: u32, ids: (&[u8], &[u8]), token: &[u8]) -> Vec<u8> {
    let first = if version == 1 { 0xc3 } else { 0xd3 };
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    for id in [ids.0, ids.1] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    packet.extend([0x40, token.len() as u8]);
    packet.extend(token);
    packet.resize(1200, 0x55);
    packet
}

fn judge(from: &str, seconds: u64, packet: &[u8]) -> (Challenged, Vec<u8>) {
    let payload = &packet[..packet.len().min(CHALLENGE_MAX)];
    let source = UnverifiedSource {
        from: from.parse().unwrap(),
        to: "[::1]:443".parse().unwrap(),
        now: at(seconds),
        payload,
    };
    let mut answer = vec![0; payload.len()];
    let judged = QuicRetryChallenge::new(HashKey::new(1, 2)).judge(&source, &mut answer);
    let len = if let Challenged::Answer(len) = judged { len } else { 0 };
    answer.truncate(len);
    (judged, answer)
}

/// The ID and the token of a Retry to a client with an ID of three bytes.
fn parts(retry: &[u8]) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(retry[5..9], [3, 7, 8, 9], "to the client's own ID");
    assert_eq!(retry[9], 8);
    (retry[10..18].to_vec(), retry[18..retry.len() - 16].to_vec())
}

#[test]
fn a_first_initial_gets_a_retry_with_a_token_that_proves_its_sender_alone_and_for_a_while() {
    for from in FROM {
        for version in [1, 0x6b33_43cf] {
            for original in [&[1, 2, 3, 4, 5, 6, 7, 8][..], &[9; 20]] {
                let (judged, retry) =
                    judge(from, 100, &initial(version, (original, &[7, 8, 9]), b""));
                assert_eq!(judged, Challenged::Answer(retry.len()));
                assert!(retry.len() <= 79, "{}", retry.len());
                assert_eq!(retry[0], if version == 1 { 0xf0 } else { 0xc0 });
                assert_eq!(retry[1..5], version.to_be_bytes());
                let (id, token) = parts(&retry);
                assert_ne!(id, original, "RFC 9000 section 17.2.5.1");
                let again = initial(version, (&id, &[7, 8, 9]), &token);
                assert_eq!(judge(from, 109, &again).0, Challenged::Proven);
                assert_eq!(judge(from, 119, &again).0, Challenged::Proven);
                let challenge = QuicRetryChallenge::new(HashKey::new(1, 2));
                let source = from.parse().unwrap();
                assert_eq!(challenge.original(source, at(105), &token, &id), Some(original));
                assert_eq!(challenge.original(source, at(125), &token, &id), None, "too old");
                for other in ["192.0.2.1:4434", "192.0.2.2:4433", "[2001:db8::2]:4433"] {
                    assert!(matches!(judge(other, 100, &again).0, Challenged::Answer(1..)));
                }
                let moved = initial(version, (&[1; 8], &[7, 8, 9]), &token);
                assert!(
                    matches!(judge(from, 100, &moved).0, Challenged::Answer(1..)),
                    "another ID"
                );
            }
        }
    }
}

#[test]
fn what_is_no_first_initial_is_not_answered_and_other_packets_pass() {
    let good = initial(1, (&[1; 8], &[7, 8, 9]), b"");
    assert!(matches!(judge(FROM[0], 1, &good).0, Challenged::Answer(1..)));
    // Too short a datagram, too short an ID: RFC 9000 sections 14.1 and 7.2.
    assert_eq!(judge(FROM[0], 1, &good[..500]).0, Challenged::Answer(0));
    assert_eq!(judge(FROM[0], 1, &initial(1, (&[1; 7], &[7, 8, 9]), b"")).0, Challenged::Answer(0));
    for (at, byte) in [(0, 0x43), (0, 0xe3), (1, 1), (5, 21)] {
        let mut other = good.clone();
        other[at] = byte;
        assert_eq!(judge(FROM[0], 1, &other).0, Challenged::Pass, "byte {at}");
    }
    assert_eq!(judge(FROM[0], 1, b"").0, Challenged::Pass);
}

proptest! {
    #[test]
    fn any_datagram_is_judged_and_no_answer_is_longer(
        start in 0_usize..3, rest in proptest::collection::vec(any::<u8>(), 0..1300),
    ) {
        let mut packet = [&b""[..], b"\xc0\0\0\0\x01", b"\xd0\x6b\x33\x43\xcf"][start].to_vec();
        packet.extend(rest);
        let (judged, answer) = judge(FROM[0], 1, &packet);
        prop_assert_ne!(judged, Challenged::Proven);
        prop_assert!(answer.len() <= packet.len() && answer.len() <= 79);
    }
}
