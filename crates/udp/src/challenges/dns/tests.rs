//! Queries in, judgements out.

use floodwall_base::Instant;

use super::*;

/// A query for `example.`, with these options.
fn query(options: Option<&[u8]>) -> Vec<u8> {
    let mut query = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01".to_vec();
    if let Some(options) = options {
        query[11] = 1;
        query.extend([0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, options.len() as u8]);
        query.extend(options);
    }
    query
}

/// The option with a client's cookie, and room for that of a server.
fn padded() -> Vec<u8> {
    [&[0, 10, 0, 8][..], b"clientxx", &[0, 12, 0, 20], &[0; 20]].concat()
}

fn judge(challenge: DnsChallenge, from: &str, seconds: u64, payload: &[u8]) -> Judged {
    let source = UnverifiedSource {
        from: from.parse().unwrap(),
        to: "[::1]:53".parse().unwrap(),
        now: Instant::from_nanos(seconds * 1_000_000_000),
        payload,
    };
    let mut answer = vec![0; payload.len()];
    let judged = challenge.judge(&source, &mut answer);
    if let Challenged::Answer(len) = judged {
        answer.truncate(len);
    }
    Judged(judged, answer)
}

struct Judged(Challenged, Vec<u8>);

fn cookies_of() -> DnsChallenge {
    DnsChallenge::new(HashKey::new(1, 2))
}

#[test]
fn a_cookie_is_given_where_there_is_room_and_proves_its_source_alone() {
    for (from, other) in [("192.0.2.1:9", "192.0.2.2:9"), ("[2001:db8::1]:9", "[2001:db8::2]:9")] {
        let asked = query(Some(&padded()));
        let Judged(judged, answer) = judge(cookies_of(), from, 10_000, &asked);
        assert_eq!(judged, Challenged::Answer(answer.len()));
        assert!(answer.len() <= asked.len());
        // BADCOOKIE: 7 in the header, 1 in the record.
        assert_eq!(answer[..4], [0x12, 0x34, 0x81, 0x87]);
        let end = question_end(&asked).unwrap();
        assert_eq!(answer[HEADER..end], asked[HEADER..end]);
        assert_eq!(answer[end + 5], 1);
        let option = options(&answer, end).unwrap();
        let (client, server) = cookies(option).unwrap();
        assert_eq!((client, server.len()), (&b"clientxx"[..], 16));
        let again = query(Some(option));
        assert_eq!(judge(cookies_of(), from, 13_600, &again).0, Challenged::Proven);
        assert_eq!(
            judge(cookies_of(), from, 9_800, &again).0,
            Challenged::Proven,
            "a clock behind"
        );
        // Another cookie is given, for which there is room.
        let anew = Challenged::Answer(again.len());
        assert_eq!(judge(cookies_of(), from, 13_601, &again).0, anew, "too old");
        assert_eq!(judge(cookies_of(), other, 10_000, &again).0, anew);
        let mut changed = again.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(judge(cookies_of(), from, 10_000, &changed).0, anew);
    }
}

#[test]
fn without_room_or_a_cookie_the_answer_is_truncated_where_there_is_tcp() {
    let short: &[u8] = &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    for from in ["192.0.2.1:9", "[2001:db8::1]:9"] {
        for options in [None, Some(&[][..]), Some(short)] {
            let asked = query(options);
            assert_eq!(judge(cookies_of(), from, 1, &asked).0, Challenged::Pass);
            let Judged(judged, answer) = judge(cookies_of().with_tcp(), from, 1, &asked);
            assert_eq!(judged, Challenged::Answer(answer.len()));
            assert_eq!(answer[..12], [0x12, 0x34, 0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, asked[11]]);
            let end = question_end(&asked).unwrap();
            assert_eq!(answer.len(), end + if options.is_some() { RECORD_BYTES } else { 0 });
        }
    }
    let mut direct = query(None);
    direct[2] = 0;
    let Judged(_, answer) = judge(cookies_of().with_tcp(), "192.0.2.1:9", 1, &direct);
    assert_eq!(answer[2..4], [0x86, 0], "with authority");
}

#[test]
fn what_is_no_query_passes_and_nothing_panics() {
    let challenge = cookies_of().with_tcp();
    let asked = query(Some(&padded()));
    for (at, byte) in [(2, 0x81), (2, 0x28), (5, 2), (7, 1), (9, 1), (11, 2), (12, 0xc0)] {
        let mut bad = asked.clone();
        bad[at] = byte;
        assert_eq!(judge(challenge, "192.0.2.1:9", 1, &bad).0, Challenged::Pass, "{at}");
    }
    for len in 0..asked.len() {
        let Judged(judged, answer) = judge(challenge, "192.0.2.1:9", 1, &asked[..len]);
        assert!(judged == Challenged::Pass || answer.len() <= len, "{len}: {judged:?}");
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let mut any = asked.clone();
        for _ in 0..3 {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let at = (state >> 33) as usize % any.len();
            any[at] = (state >> 20) as u8;
        }
        judge(challenge, "192.0.2.1:9", 1, &any);
    }
}
