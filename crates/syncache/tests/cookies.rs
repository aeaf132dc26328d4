//! Cookies through the whole cache: which are accepted, for how long, after which events, and at
//! what cost. Security bar: guessable cookies (row 4), cookies after the listener (row 3).
#![expect(clippy::unwrap_used, reason = "a failed precondition ends the test")]

use core::time::Duration;

use floodwall_base::{Mss, Randomness, Seq};
use floodwall_syncache::contract::{HandshakeClient, at_millis, listening, proven, sent};
use floodwall_syncache::{
    AckOutcome, AckRefusal, CacheSettings, CookieEpoch, CookieMoment, CookiePolicy, HalfOpen,
    HandshakeAck, ListenSettings, ListenerId, ProvenBy, Secret, SynAnswer, SynCache, SynOptions,
};

const MINUTE: u64 = 60_000;

/// The secret of the tests, which instances of different starts may share.
fn secret(n: u8) -> Secret {
    let bytes: Vec<u8> = (0..32).map(|byte| byte * 3 + n).collect();
    Secret::from_bytes(&bytes).unwrap()
}

fn instance(start: u64, secret: Secret, settings: CacheSettings) -> SynCache {
    SynCache::new(settings, secret, &mut Randomness::from_number(start).secret, at_millis(0))
}

/// An instance that was started long ago, with a listener.
fn old(settings: CacheSettings, cookies: CookiePolicy) -> (SynCache, ListenerId) {
    let mut it = instance(1, secret(1), settings);
    let listener = it.listen(ListenSettings { cookies, ..listening(64) }).unwrap();
    (it, listener)
}

fn clients() -> impl Iterator<Item = HandshakeClient> {
    [false, true].into_iter().flat_map(|v6| {
        let client = HandshakeClient::nth(7, v6);
        [client, client.timeless()]
    })
}

fn refused(acked: AckOutcome) -> AckRefusal {
    match acked {
        AckOutcome::Refused(why) => why,
        AckOutcome::Proven(proof) => panic!("accepted: {proof:?}"),
    }
}

#[test]
fn a_cookie_keeps_what_was_offered_exactly_with_timestamps_and_rounded_down_without() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = it.syn(listener, &client.syn(), at_millis(MINUTE));
        assert!(matches!(answer, SynAnswer::Cookie(_)) && it.stats().half_open == 0);
        // ECN is agreed to where it can be kept: in our timestamp, or not at all.
        assert_eq!(sent(answer).ecn, client.options.timestamp.is_some());
        let proof = proven(it.ack(listener, &client.ack(&sent(answer)), at_millis(MINUTE + 90)));
        assert_eq!((proof.by(), proof.mss(), proof.sack()), (ProvenBy::Cookie, Mss(1440), true));
        assert_eq!(proof.window_scale(), Some((7, 7)));
        assert_eq!((proof.irs(), proof.iss()), (client.irs, sent(answer).seq));
        assert_eq!(proof.ecn(), client.options.timestamp.is_some());
        assert_eq!(proof.timestamps().is_some(), client.options.timestamp.is_some());
    }
    // 14 does not fit the sequence number, where 10 is the next lower value. It fits the
    // timestamp.
    for (client, scale) in
        [(HandshakeClient::nth(7, false), 14), (HandshakeClient::nth(7, false).timeless(), 10)]
    {
        let options = SynOptions { window_scale: Some(15), mss: Some(1500), ..client.options };
        let client = HandshakeClient { options, ..client };
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 1)));
        assert_eq!((proof.window_scale(), proof.mss()), (Some((scale, 7)), Mss(1460)));
    }
}

#[test]
fn odd_offers_give_sane_connections() {
    for v6 in [false, true] {
        for (mss, least) in [(Some(0), 88), (Some(1), 88), (Some(65_535), 8940), (None, 88)] {
            for scale in [None, Some(0), Some(14), Some(15), Some(255)] {
                for timestamp in [None, Some(0), Some(u32::MAX)] {
                    let options =
                        SynOptions { mss, window_scale: scale, timestamp, ..SynOptions::default() };
                    let client = HandshakeClient { options, ..HandshakeClient::nth(1, v6) };
                    let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
                    let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
                    let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE)));
                    assert!(proof.mss().0 >= least && proof.mss().0 <= 8960);
                    assert!(!proof.sack() && !proof.ecn());
                    assert_eq!(proof.window_scale().is_some(), scale.is_some());
                    assert!(proof.window_scale().is_none_or(|(theirs, ours)| {
                        theirs <= 14 && theirs <= scale.unwrap_or(0) && ours <= 14
                    }));
                }
            }
        }
    }
}

#[test]
fn nothing_is_believed_or_even_computed_without_a_recent_reason() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
        // A cookie of the same secret, made by a sister instance: valid, but not verified.
        let (mut sister, theirs) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(sister.syn(theirs, &client.syn(), at_millis(MINUTE)));
        it.take_spent();
        let acked = it.ack(listener, &client.ack(&answer), at_millis(MINUTE));
        assert_eq!(refused(acked), AckRefusal::Unknown);
        assert_eq!((it.take_spent().0, it.stats().unasked), (1, 1), "one look, no hash");
        // One cookie of its own opens the gate for thirty seconds, of this listener only.
        let other = it.listen(listening(8)).unwrap();
        it.unsent(&client.flow, at_millis(MINUTE));
        let crowd = HandshakeClient::nth(99, false);
        let _ = it.syn(listener, &crowd.syn(), at_millis(MINUTE));
        it.unsent(&crowd.flow, at_millis(MINUTE));
        let elsewhere = it.ack(other, &client.ack(&answer), at_millis(MINUTE));
        assert_eq!(refused(elsewhere), AckRefusal::Unknown);
        let _ = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 1000)));
        let late = it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 30_000));
        assert_eq!(refused(late), AckRefusal::Unknown);
    }
}

#[test]
fn a_cookie_outlives_one_turn_of_the_keys_and_not_two() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        // 14.9 s into a period; the next one is a tenth of a second away.
        let made = at_millis(MINUTE + 14_900 - 1_000_000 % 15_000);
        assert_ne!(
            made.epoch,
            CookieMoment::simulated(made.now + Duration::from_millis(100)).epoch
        );
        let answer = sent(it.syn(listener, &client.syn(), made));
        let after = |millis| CookieMoment::simulated(made.now + Duration::from_millis(millis));
        for (millis, good) in [(50, true), (150, true), (15_050, true), (15_150, false)] {
            let acked = it.ack(listener, &client.ack(&answer), after(millis));
            assert_eq!(matches!(acked, AckOutcome::Proven(_)), good, "{millis} ms");
        }
        // To the nanosecond: the last before and the first after each turn of the keys.
        let turn = Duration::from_nanos(100_000_000);
        for (turns, before, at) in [(0, true, true), (1, true, false)] {
            let turn = turn + turns * Duration::from_secs(15);
            for (short, good) in [(Duration::from_nanos(1), before), (Duration::ZERO, at)] {
                let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
                let answer = sent(it.syn(listener, &client.syn(), made));
                let now = CookieMoment::simulated(made.now + (turn - short));
                let acked = it.ack(listener, &client.ack(&answer), now);
                assert_eq!(matches!(acked, AckOutcome::Proven(_)), good, "{turns} {short:?}");
            }
        }
        // A wall clock that is set back has the old keys again; one that jumps ahead has no
        // common key.
        let jumped = CookieMoment::new(after(15_200).now, CookieEpoch(made.epoch.0 + 1000));
        assert_eq!(refused(it.ack(listener, &client.ack(&answer), jumped)), AckRefusal::Unknown);
    }
}

#[test]
fn a_restart_and_a_sister_with_the_same_secret_believe_each_others_cookies() {
    for client in clients() {
        let (mut first, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(first.syn(listener, &client.syn(), at_millis(5)));
        drop(first);
        // Another start, other keys of its tables, a monotonic clock of its own.
        let mut again = instance(2, secret(1), CacheSettings::default());
        let listener = again.listen(listening(8)).unwrap();
        let proof = proven(again.ack(listener, &client.ack(&answer), at_millis(2000)));
        let wanted = client.options.timestamp.map(|_| (7, 7)).or(Some((7, 7)));
        assert_eq!((proof.by(), proof.window_scale()), (ProvenBy::Cookie, wanted));
        let echo = answer.timestamp.map(|(value, _)| value);
        let onwards = proof.timestamps().map(|t| t.last_sent);
        assert!(onwards.zip(echo).is_none_or(|(now, then)| now.wrapping_sub(then) < 64));

        // Instances with a shared secret verify every unknown ACK, at any time.
        let shared = CacheSettings { shared: true, ..CacheSettings::default() };
        let (mut sister, theirs) = old(shared, CookiePolicy::Overflow);
        let (mut one, ours) = old(shared, CookiePolicy::Overflow);
        let answer = sent(one.syn(ours, &client.syn(), at_millis(9 * MINUTE)));
        let _ = proven(sister.ack(theirs, &client.ack(&answer), at_millis(9 * MINUTE + 40)));

        // Another secret accepts none of its cookies.
        let mut unknown = instance(1, secret(2), shared);
        let listener = unknown.listen(listening(8)).unwrap();
        let acked = unknown.ack(listener, &client.ack(&answer), at_millis(9 * MINUTE + 40));
        assert_eq!(refused(acked), AckRefusal::Unknown);
        assert_eq!(unknown.stats().cookies_failed, 1);
    }
}

/// The client's SYN was sent again while its ACK was in flight: the next instance stores it,
/// with another number, and then receives the ACK of the first answer.
#[test]
fn a_restart_that_hears_the_syn_again_first_believes_the_answer_of_the_instance_before() {
    for (client, shared) in clients().flat_map(|client| [(client, false), (client, true)]) {
        let (mut first, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
        let answer = sent(first.syn(listener, &client.syn(), at_millis(5)));
        let mut next = instance(2, secret(1), CacheSettings { shared, ..CacheSettings::default() });
        let listener = next.listen(listening(8)).unwrap();
        // With a shared secret at any time, else while keys are recent; and with one key
        // rotation between.
        let now = if shared { 10 } else { 9 } * 1000;
        let again = sent(next.syn(listener, &client.syn(), at_millis(now)));
        assert!(next.expects(&client.flow));
        let proof = proven(next.ack(listener, &client.ack(&answer), at_millis(now + 50)));
        assert_eq!((proof.by(), proof.iss()), (ProvenBy::Cookie, answer.seq));
        assert_eq!((next.stats().half_open, next.expects(&client.flow)), (0, false));
        let _ = again;
    }
}

/// The same, and the client has sent data: its answer to the SYN-ACK of the new entry lies behind
/// that data, and must not be answered by a reset.
#[test]
fn a_restart_that_hears_the_syn_again_believes_what_lies_behind_the_clients_first_data() {
    for client in clients() {
        let (mut first, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
        let answer = sent(first.syn(listener, &client.syn(), at_millis(5)));
        let mut next = instance(2, secret(1), CacheSettings::default());
        let listener = next.listen(listening(8)).unwrap();
        // The keys have turned between.
        let again = sent(next.syn(listener, &client.syn(), at_millis(16_000)));
        assert_ne!(again.seq, answer.seq);
        let ack = client.ack(&answer);
        let began = ack.seq - 1;
        let behind = |bytes: u32| HandshakeAck { seq: ack.seq + bytes, ..ack };
        // What lies beyond the window of the new entry is no answer to it.
        let window = u32::from(listening(8).window);
        let beyond = next.ack(listener, &behind(window), at_millis(16_040));
        assert_eq!(refused(beyond), AckRefusal::Unknown);
        assert!(next.expects(&client.flow), "a guess removes nothing");
        let proof = proven(next.ack(listener, &behind(100), at_millis(16_050)));
        assert_eq!((proof.by(), proof.iss(), proof.irs()), (ProvenBy::Cookie, answer.seq, began));
        assert_eq!((next.stats().half_open, next.expects(&client.flow)), (0, false));
        // Data that is still to come is older than this ACK.
        let of_syn = client.syn().options.timestamp;
        assert_eq!(proof.timestamps().map(|it| it.recent), of_syn);
    }
}

/// The same while the gate is shut: an ACK with another acknowledgment costs no hash.
#[test]
fn a_wrong_acknowledgement_of_a_known_client_costs_no_hash_when_nothing_is_wrong() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        it.take_spent();
        let wrong = HandshakeAck { ack: answer.seq + 2, ..client.ack(&answer) };
        assert_eq!(refused(it.ack(listener, &wrong, at_millis(MINUTE + 1))), AckRefusal::BadAck);
        assert_eq!((it.take_spent().0, it.stats().cookies_failed), (1, 0));
        assert!(it.expects(&client.flow));
    }
}

#[test]
fn a_secret_that_changes_in_mid_handshake_costs_nothing_the_connection() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        assert!(!it.reload(secret(1), at_millis(MINUTE)), "the same file again");
        assert!(it.reload(secret(2), at_millis(MINUTE + 10)));
        let newer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE + 20)));
        assert_ne!(answer.seq, newer.seq);
        for answer in [answer, newer] {
            let _ = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 100)));
        }
        let gone = it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 30_010));
        assert_eq!(refused(gone), AckRefusal::Unknown);
    }
}

#[test]
fn an_entry_outlives_every_key_that_could_have_made_it() {
    let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
    let client = HandshakeClient::nth(3, true);
    let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
    it.reload(secret(5), at_millis(MINUTE + 1));
    it.reload(secret(6), at_millis(MINUTE + 2));
    let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 14_000)));
    assert_eq!((proof.by(), proof.ecn()), (ProvenBy::Cache, true));
}

#[test]
fn one_that_was_displaced_is_still_let_in_by_the_cookie_that_every_sequence_number_is() {
    for client in clients() {
        let one = CacheSettings { rows: 1, entries: 1, ..CacheSettings::default() };
        let (mut it, listener) = old(one, CookiePolicy::Overflow);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        let crowd = HandshakeClient::nth(50, false);
        assert!(matches!(
            it.syn(listener, &crowd.syn(), at_millis(MINUTE + 1)),
            SynAnswer::Cached(_) | SynAnswer::Cookie(_)
        ));
        assert!(!it.expects(&client.flow));
        let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 40)));
        assert_eq!((proof.by(), proof.sack()), (ProvenBy::Cookie, true));
    }
}

#[test]
fn one_that_comes_back_with_a_cookie_is_recognized_and_no_guess_is() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(100_000)));
        let ack = client.ack(&answer);
        assert!(!it.expects(&client.flow) && it.recognizes(&ack));
        for bit in 0..32 {
            let guess = HandshakeAck { ack: Seq((ack.ack - 1).0 ^ 1 << bit) + 1, ..ack };
            assert!(!it.recognizes(&guess), "bit {bit}");
            assert!(
                !it.recognizes(&HandshakeAck { seq: Seq(ack.seq.0 ^ 1 << bit), ..ack }),
                "bit {bit}"
            );
        }
        let other = HandshakeClient::nth(77, false).flow;
        assert!(!it.recognizes(&HandshakeAck { flow: other, ..ack }));
        // The query changed nothing.
        assert_eq!(it.stats().acks(), 0);
        proven(it.ack(listener, &ack, at_millis(100_001)));
    }
}

#[test]
fn a_cache_that_never_makes_cookies_loses_the_clients_that_it_evicts() {
    let one = CacheSettings { rows: 1, entries: 1, ..CacheSettings::default() };
    let (mut it, listener) = old(one, CookiePolicy::Never);
    let client = HandshakeClient::nth(1, false);
    let answer = sent(it.syn(listener, &client.syn(), at_millis(1)));
    let _ = sent(it.syn(listener, &HandshakeClient::nth(2, false).syn(), at_millis(2)));
    let acked = it.ack(listener, &client.ack(&answer), at_millis(3));
    assert_eq!(refused(acked), AckRefusal::Unknown);
    assert_eq!((it.stats().cookies_failed, it.stats().unasked), (0, 1));
}

#[test]
fn a_closed_listener_leaves_nothing_and_its_cookies_are_clean_connections_of_the_next() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        it.unlisten(listener);
        let next = it.listen(listening(8)).unwrap();
        // Nothing was evicted: entries of the last listener do not open the gate.
        let acked = it.ack(next, &client.ack(&answer), at_millis(MINUTE + 5));
        assert_eq!(refused(acked), AckRefusal::Unknown);
        assert!(AckRefusal::Unknown.wants_reset() && it.stats().half_open == 0);
        // By cookie it is accepted, with all that it offered.
        let always = ListenSettings { cookies: CookiePolicy::Always, ..listening(8) };
        it.unlisten(next);
        let last = it.listen(always).unwrap();
        let _ = it.syn(last, &HandshakeClient::nth(9, false).syn(), at_millis(MINUTE + 6));
        let proof = proven(it.ack(last, &client.ack(&answer), at_millis(MINUTE + 7)));
        assert_eq!((proof.listener(), proof.mss()), (last, Mss(1440)));
    }
}

/// Neither by an entry nor by a cookie.
#[test]
fn a_listener_that_scales_no_windows_agrees_to_no_scale() {
    for client in clients() {
        for cookies in [CookiePolicy::Never, CookiePolicy::Always] {
            let mut it = instance(1, secret(1), CacheSettings::default());
            let plain = ListenSettings { cookies, scaling: false, ..listening(8) };
            let listener = it.listen(plain).unwrap();
            let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
            assert_eq!((answer.window_scale, answer.sack), (None, true));
            let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(MINUTE + 5)));
            assert_eq!((proof.window_scale(), proof.sack()), (None, true));
        }
    }
}

#[test]
fn a_cookie_is_of_one_client_one_link_and_one_sequence_number() {
    for client in clients() {
        let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Always);
        let answer = sent(it.syn(listener, &client.syn(), at_millis(MINUTE)));
        let good = client.ack(&answer);
        let (mut other_port, mut other_zone, mut other_addr) = (good, good, good);
        other_port.flow.remote.port ^= 1;
        other_zone.flow.zone.0 ^= 1;
        other_addr.flow.remote = HandshakeClient::nth(8, false).flow.remote;
        let mut all =
            vec![other_port, other_zone, other_addr, HandshakeAck { seq: good.seq + 1, ..good }];
        all.push(HandshakeAck { ack: good.ack + 1, ..good });
        if let Some((value, echo)) = good.timestamp {
            all.push(HandshakeAck { timestamp: Some((value, echo ^ 1)), ..good });
            all.push(HandshakeAck { timestamp: None, ..good });
        } else {
            all.push(HandshakeAck { timestamp: Some((1, 0)), ..good });
        }
        for ack in all {
            let acked = it.ack(listener, &ack, at_millis(MINUTE + 1));
            assert_eq!(refused(acked), AckRefusal::Unknown, "{ack:?}");
        }
        // Again after the connection has ended: a cookie can be used as long as it is valid.
        let _ = proven(it.ack(listener, &good, at_millis(MINUTE + 1)));
        let _ = proven(it.ack(listener, &good, at_millis(MINUTE + 2)));
    }
}

/// Tries `tries` acknowledgements, evenly spread over the number space and over `flows`
/// clients; returns how many are accepted. `told` is called after every part.
fn forge(
    it: &mut SynCache,
    listener: ListenerId,
    (tries, flows): (u64, u64),
    mut told: impl FnMut(u64, u64),
) -> u64 {
    for part in 0..flows {
        let client = HandshakeClient::nth(7 + part as u32, part % 2 == 1);
        // A tenth of a second each: the budget refills, and one epoch covers all of them.
        let at = at_millis(MINUTE + 100 * part);
        let base =
            HandshakeAck { flow: client.flow, seq: client.irs + 1, ack: Seq(0), timestamp: None };
        for n in tries * part / flows..tries * (part + 1) / flows {
            let ack = HandshakeAck { ack: Seq((n as u32).wrapping_mul(0x9e37_79b1)), ..base };
            if let AckOutcome::Proven(proof) = it.ack(listener, &ack, at) {
                it.accepted(proof.slot());
            }
        }
        told(part + 1, it.stats().cookies_received);
    }
    it.stats().cookies_received
}

/// Three sigma of a Poisson count, rounded outwards.
fn is_by_chance(believed: u64, expected: f64) -> bool {
    (believed as f64 - expected).abs() <= (3.0 * expected.sqrt()).ceil()
}

/// The design: 2^7 flags and two parities of 2^32, one try in 2^24, while one pair of keys is open.
/// A short run tries 2^22, where none is likelier than one, and detects an acceptance rate of eight
/// times the design value or more; the long one all 2^32 numbers, where 256 are expected and 208 to
/// 304 are the bound: `FLOODWALL_DEEP=1 cargo test --release -p floodwall-syncache --test cookies
/// -- forged --nocapture`, some minutes.
#[test]
fn forged_acknowledgements_are_believed_as_rarely_as_the_design_says() {
    let deep = std::env::var_os("FLOODWALL_DEEP").is_some_and(|value| value != "0");
    let settings =
        CacheSettings { verifications: (2_000_000_000, 2_000_000_000), ..CacheSettings::default() };
    let (mut it, listener) = old(settings, CookiePolicy::Always);
    let _ = it.syn(listener, &HandshakeClient::nth(1, false).syn(), at_millis(MINUTE));
    let (tries, flows) = if deep { (1 << 32, 64) } else { (1 << 22, 8) };
    let believed = forge(&mut it, listener, (tries, flows), |part, believed| {
        if deep {
            eprintln!("{part} of {flows}: {believed} accepted");
        }
    });
    let expected = tries as f64 / f64::from(1 << 24);
    assert!(is_by_chance(believed, expected), "{believed} of {tries}, {expected} expected");
    let stats = it.stats();
    assert_eq!(stats.cookies_failed + stats.cookies_received, tries, "each was computed");
    if deep {
        let sigmas = (believed as f64 - expected) / expected.sqrt();
        eprintln!("{believed} of {tries} accepted, {expected} expected: {sigmas:+.2} sigma");
    }
}

/// The mutations that the bound must detect: twice as many accepted, for a hash one bit
/// shorter, and none at all.
#[test]
fn the_bound_of_forged_acknowledgements_refuses_half_and_twice_the_design() {
    for (believed, expected, good) in [
        (256, 256.0, true),
        (208, 256.0, true),
        (207, 256.0, false),
        (305, 256.0, false),
        (512, 256.0, false),
        (128, 256.0, false),
        (0, 0.5, true),
        (3, 0.5, true),
        (4, 0.5, false),
    ] {
        assert_eq!(is_by_chance(believed, expected), good, "{believed} for {expected}");
    }
}

#[test]
fn forged_acknowledgements_cost_no_hash_when_nothing_is_wrong() {
    let (mut it, listener) = old(CacheSettings::default(), CookiePolicy::Overflow);
    it.take_spent();
    assert_eq!(forge(&mut it, listener, (10_000, 2), |_, _| ()), 0);
    assert_eq!((it.take_spent().0, it.stats().unasked), (10_000, 10_000));
}

#[test]
fn verification_keeps_to_its_budget_and_honest_acknowledgements_come_first() {
    let settings = CacheSettings { verifications: (1000, 100), ..CacheSettings::default() };
    let (mut it, listener) = old(settings, CookiePolicy::Always);
    let honest: Vec<_> = (0..25).map(|n| HandshakeClient::nth(1000 + n, n % 2 == 0)).collect();
    let answers: Vec<_> =
        honest.iter().map(|c| sent(it.syn(listener, &c.syn(), at_millis(MINUTE)))).collect();
    for n in 0..10_000 {
        let client = HandshakeClient::nth(5000 + n, n % 2 == 1);
        let ack = client.ack(&answers[0]);
        let _ = it.ack(listener, &ack, at_millis(MINUTE + 50));
    }
    let stats = it.stats();
    assert!(stats.cookies_failed <= 100, "{} hashes for forged ACKs", stats.cookies_failed);
    assert!(stats.over_budget >= 9_900 && !AckRefusal::Budget.wants_reset());
    for (client, answer) in honest.iter().zip(&answers) {
        let _ = proven(it.ack(listener, &client.ack(answer), at_millis(MINUTE + 51)));
    }
}
