//! The contract: the behaviour that every [`HalfOpen`] must have, and a test client that checks it.
//!
//! Used by the tests of this crate, of the lab's baselines and of any other implementation of
//! [`HalfOpen`] (feature `testing`). [`check`] asserts each guarantee on fresh instances, in both
//! families. Invariant: nothing here depends on how half-open connections are stored, or on
//! cookies.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{Endpoint, FlowKey, IfIndex, Instant, Seq, Units};

use crate::half_open::{AckOutcome, AckRefusal, HalfOpen, ResetReply, SynAck, SynAnswer};
use crate::listener::ListenerId;
use crate::moment::CookieMoment;
use crate::proven::Proven;
use crate::segment::{HandshakeAck, SynOptions, SynSegment};
use crate::settings::{CookiePolicy, ListenSettings};

/// A client that opens one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeClient {
    /// The flow, as the server sees it.
    pub flow: FlowKey,
    /// Its initial sequence number.
    pub irs: Seq,
    /// The options it offers.
    pub options: SynOptions,
}

impl HandshakeClient {
    /// The `n`th client of IPv4 or IPv6, with commonly used options; few clients share a
    /// prefix.
    #[must_use]
    pub fn nth(n: u32, v6: bool) -> Self {
        let (net, port) = (n % (1 << 20), 1024 + (n >> 20) as u16);
        let (local, remote) = if v6 {
            let remote = 0x2001_0db8_u128 << 96 | u128::from(net) << 72 | 0x77;
            (IpAddr::V6(LOCAL_V6.into()), IpAddr::V6(remote.into()))
        } else {
            let remote = 0x0a00_0000 | net << 4 | 7;
            (IpAddr::V4(LOCAL_V4.into()), IpAddr::V4(remote.into()))
        };
        Self::at(Endpoint::new(local, 80), Endpoint::new(remote, port)).starting_at(n ^ 0xdead)
    }

    /// A client with these endpoints.
    #[must_use]
    pub const fn at(local: Endpoint, remote: Endpoint) -> Self {
        Self {
            flow: FlowKey { local, remote, zone: IfIndex::LOOPBACK, protocol: 6 },
            irs: Seq(0),
            options: SynOptions {
                mss: Some(1440),
                window_scale: Some(7),
                sack: true,
                timestamp: Some(1000),
                ecn: true,
            },
        }
    }

    /// The same with another initial sequence number.
    #[must_use]
    pub const fn starting_at(self, irs: u32) -> Self {
        Self { irs: Seq(irs), ..self }
    }

    /// The same client without timestamps.
    #[must_use]
    pub const fn timeless(self) -> Self {
        Self { options: SynOptions { timestamp: None, ..self.options }, ..self }
    }

    /// Its SYN.
    #[must_use]
    pub const fn syn(&self) -> SynSegment {
        SynSegment { flow: self.flow, seq: self.irs, window: 64_240, options: self.options }
    }

    /// Its ACK of that SYN-ACK, 30 ticks of its clock later.
    #[must_use]
    pub fn ack(&self, answer: &SynAck) -> HandshakeAck {
        let echo = answer.timestamp.map(|(value, _)| value);
        let timestamp = self.options.timestamp.zip(echo);
        HandshakeAck {
            flow: self.flow,
            seq: self.irs + 1,
            ack: answer.seq + 1,
            timestamp: timestamp.map(|(mine, echo)| (mine.wrapping_add(30), echo)),
        }
    }
}

/// The server's addresses.
const LOCAL_V4: u32 = 0xc000_0201;
const LOCAL_V6: u128 = 0xfd00_u128 << 112 | 1;

/// A point in time for tests.
#[must_use]
pub const fn at_millis(millis: u64) -> CookieMoment {
    CookieMoment::simulated(Instant::from_nanos(1_000_000_000_000 + millis * 1_000_000))
}

/// A listener that allows everything.
#[must_use]
pub const fn listening(backlog: usize) -> ListenSettings {
    ListenSettings { prefix_backlog: backlog, ..ListenSettings::new(backlog) }
}

/// The SYN-ACK of an answer; a test fails if there is none.
///
/// # Panics
/// The SYN was refused.
#[must_use]
pub fn sent(answer: SynAnswer) -> SynAck {
    *answer.syn_ack().unwrap_or_else(|| panic!("not answered: {answer:?}"))
}

/// The proof of an accepted ACK; a test fails if there is none.
///
/// # Panics
/// The ACK was refused.
pub fn proven(acked: AckOutcome) -> Proven {
    match acked {
        AckOutcome::Proven(proof) => proof,
        AckOutcome::Refused(why) => panic!("refused: {why:?}"),
    }
}

/// Asserts everything that a [`HalfOpen`] guarantees. `make` creates an empty instance with at
/// least 8 places.
///
/// # Panics
/// A guarantee is broken.
pub fn check<H: HalfOpen>(make: impl Fn() -> H) {
    for v6 in [false, true] {
        a_handshake_proves_what_the_syn_said(&make, v6);
        a_known_client_is_answered_as_before(&make, v6);
        guesses_remove_nothing(&make, v6);
        what_is_refused_for_want_of_room_stays(&make, v6);
        a_listener_takes_its_clients_with_it(&make, v6);
        sent_again_five_times_and_over_after_63_seconds(&make, v6);
        what_could_not_be_sent_is_not_sent_again(&make, v6);
    }
    nothing_is_answered_for_what_nothing_can_be(&make);
    links_do_not_share_their_addresses(&make);
    a_flood_grows_nothing(&make);
    timed_work_keeps_to_its_units(&make);
}

/// A listener that must be there.
fn listen<H: HalfOpen>(of: &mut H, backlog: usize) -> ListenerId {
    let settings = ListenSettings { cookies: CookiePolicy::Overflow, ..listening(backlog) };
    of.listen(settings).unwrap_or_else(|| panic!("no room for one listener"))
}

fn a_handshake_proves_what_the_syn_said<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let bare = SynOptions { mss: None, ..SynOptions::default() };
    let offers =
        [HandshakeClient::nth(1, v6).options, HandshakeClient::nth(1, v6).timeless().options, bare];
    for options in offers {
        let mut it = make();
        let listener = listen(&mut it, 8);
        let client = HandshakeClient { options, ..HandshakeClient::nth(1, v6) };
        let answer = sent(it.syn(listener, &client.syn(), at_millis(0)));
        assert_eq!((answer.flow, answer.ack), (client.flow, client.irs + 1));
        assert_eq!(answer.window_scale.is_some(), options.window_scale.is_some());
        assert_eq!((answer.sack, answer.ecn), (options.sack, options.ecn));
        assert_eq!(answer.timestamp.map(|(_, echo)| echo), options.timestamp);
        let ack = client.ack(&answer);
        assert!(it.expects(&client.flow) && it.recognizes(&ack));
        assert!(
            !it.recognizes(&HandshakeAck { ack: ack.ack + 1, ..ack }),
            "a guess is not recognized"
        );
        let proof = proven(it.ack(listener, &client.ack(&answer), at_millis(50)));
        assert_eq!((*proof.flow(), proof.listener()), (client.flow, listener));
        assert_eq!((proof.irs(), proof.iss()), (client.irs, answer.seq));
        assert_eq!(proof.mss().0, options.mss.unwrap_or(if v6 { 1220 } else { 536 }));
        let shifts = options.window_scale.zip(answer.window_scale);
        assert_eq!((proof.window_scale(), proof.sack()), (shifts, options.sack));
        assert_eq!(proof.ecn(), options.ecn);
        assert_eq!(proof.timestamps().map(|t| t.recent), options.timestamp.map(|t| t + 30));
        let ours = proof.timestamps().zip(answer.timestamp);
        assert!(ours.is_none_or(|(t, (value, _))| t.last_sent.wrapping_sub(value) < 1 << 20));
        assert_eq!(proof.retransmitted(), 0);
        assert!(!it.expects(&client.flow), "a proof is made once");
        assert_eq!(it.stats().half_open, 0);
    }
}

fn a_known_client_is_answered_as_before<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let (listener, client) = (listen(&mut it, 8), HandshakeClient::nth(2, v6));
    let first = sent(it.syn(listener, &client.syn(), at_millis(0)));
    let again = sent(it.syn(listener, &client.syn(), at_millis(400)));
    assert_eq!((first.seq, first.ack), (again.seq, again.ack));
    assert_eq!(it.stats().half_open, 1);
    proven(it.ack(listener, &client.ack(&first), at_millis(500)));
}

fn guesses_remove_nothing<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let (listener, client) = (listen(&mut it, 8), HandshakeClient::nth(3, v6));
    let answer = sent(it.syn(listener, &client.syn(), at_millis(0)));
    let good = client.ack(&answer);
    let wrong = [
        HandshakeAck { ack: good.ack + 1, ..good },
        HandshakeAck { ack: good.ack - 1, ..good },
        HandshakeAck { ack: Seq(!good.ack.0), ..good },
        HandshakeAck { seq: client.irs, ..good },
        HandshakeAck { seq: client.irs - 70_000, ..good },
    ];
    for ack in wrong {
        let refused = it.ack(listener, &ack, at_millis(1));
        assert!(matches!(refused, AckOutcome::Refused(_)), "{ack:?}: {refused:?}");
    }
    assert_eq!(it.reset(&client.flow, client.irs, at_millis(1)), ResetReply::Ignored);
    assert_eq!(it.reset(&client.flow, client.irs - 9, at_millis(1)), ResetReply::Ignored);
    assert!(!matches!(it.reset(&client.flow, client.irs + 9, at_millis(1)), ResetReply::Removed));
    for quoted in [answer.seq + 1, answer.seq - 1, Seq(0)] {
        it.unreachable(&client.flow, quoted);
        it.unreachable(&client.flow, quoted);
    }
    proven(it.ack(listener, &good, at_millis(2)));

    let answer = sent(it.syn(listener, &client.syn(), at_millis(3)));
    assert_eq!(it.reset(&client.flow, client.irs + 1, at_millis(4)), ResetReply::Removed);
    assert!(!it.expects(&client.flow));
    assert_eq!(answer.ack, client.irs + 1);
}

fn what_is_refused_for_want_of_room_stays<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let listener = listen(&mut it, 1);
    let clients = [HandshakeClient::nth(4, v6), HandshakeClient::nth(5, v6)];
    let answers = clients.map(|c| sent(it.syn(listener, &c.syn(), at_millis(0))));
    let first = proven(it.ack(listener, &clients[0].ack(&answers[0]), at_millis(1)));
    for millis in 2..50 {
        let refused = it.ack(listener, &clients[1].ack(&answers[1]), at_millis(millis));
        assert_eq!(refused, AckOutcome::Refused(AckRefusal::AcceptFull));
        assert!(!AckRefusal::AcceptFull.wants_reset() && it.expects(&clients[1].flow));
    }
    it.accepted(first.slot());
    proven(it.ack(listener, &clients[1].ack(&answers[1]), at_millis(60)));
}

fn a_listener_takes_its_clients_with_it<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let (listener, client) = (listen(&mut it, 8), HandshakeClient::nth(6, v6));
    let answer = sent(it.syn(listener, &client.syn(), at_millis(0)));
    it.unlisten(listener);
    assert!(matches!(it.syn(listener, &client.syn(), at_millis(1)), SynAnswer::Refused(_)));
    let refused = it.ack(listener, &client.ack(&answer), at_millis(1));
    assert_eq!(refused, AckOutcome::Refused(AckRefusal::NoListener));
    let next = listen(&mut it, 8);
    assert_ne!(next, listener);
    // The next listener may recognize the handshake by a cookie, but never by state of the last
    // one.
    if let AckOutcome::Proven(proof) = it.ack(next, &client.ack(&answer), at_millis(2)) {
        assert_eq!((proof.by(), proof.listener()), (crate::ProvenBy::Cookie, next));
        assert_eq!((proof.irs(), proof.iss()), (client.irs, answer.seq));
    }
    let again = sent(it.syn(next, &client.starting_at(77).syn(), at_millis(3)));
    proven(it.ack(next, &client.starting_at(77).ack(&again), at_millis(4)));
    let mut sent_again = 0;
    it.work(at_millis(60_000), Units(10_000), &mut |_| sent_again += 1);
    assert_eq!((sent_again, it.stats().half_open), (0, 0));
}

fn sent_again_five_times_and_over_after_63_seconds<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let (listener, client) = (listen(&mut it, 8), HandshakeClient::nth(7, v6));
    assert_eq!(it.deadline(), Instant::FAR);
    let answer = sent(it.syn(listener, &client.syn(), at_millis(0)));
    let (mut when, mut now) = (Vec::new(), at_millis(0));
    while it.deadline() != Instant::FAR {
        now = CookieMoment::simulated(it.deadline().max(now.now + Duration::from_millis(1)));
        assert!(now.now < at_millis(70_000).now, "still something to do");
        it.work(now, Units(64), &mut |again| {
            assert_eq!((again.seq, again.ack, again.flow), (answer.seq, answer.ack, client.flow));
            when.push((now.now - at_millis(0).now).as_millis() as u64);
        });
    }
    assert_eq!(when.len(), 5, "{when:?}");
    for (got, wanted) in when.iter().zip([1000, 3000, 7000, 15_000, 31_000]) {
        assert!((wanted..wanted + 600).contains(got), "{when:?}");
    }
    assert!(it.stats().half_open == 0 && !it.expects(&client.flow));
    // The retransmission is reported, so that the connection begins with a small window.
    let answer = sent(it.syn(listener, &client.syn(), now));
    let later = CookieMoment::simulated(now.now + Duration::from_millis(1500));
    it.work(later, Units(64), &mut |_| {});
    assert_eq!(proven(it.ack(listener, &client.ack(&answer), later)).retransmitted(), 1);
}

fn what_could_not_be_sent_is_not_sent_again<H: HalfOpen>(make: &impl Fn() -> H, v6: bool) {
    let mut it = make();
    let (listener, client) = (listen(&mut it, 8), HandshakeClient::nth(8, v6));
    let _ = it.syn(listener, &client.syn(), at_millis(0));
    it.unsent(&client.flow, at_millis(0));
    assert!(!it.expects(&client.flow) && it.stats().half_open == 0);
    it.work(at_millis(2000), Units(64), &mut |again| panic!("{again:?}"));
}

fn nothing_is_answered_for_what_nothing_can_be<H: HalfOpen>(make: &impl Fn() -> H) {
    let mut it = make();
    let listener = listen(&mut it, 8);
    let end = |text: &str, port| {
        Endpoint::new(text.parse().unwrap_or_else(|_| panic!("no address: {text}")), port)
    };
    let all = [
        ("192.0.2.1", 80, "0.0.0.0", 5),
        ("192.0.2.1", 80, "255.255.255.255", 5),
        ("192.0.2.1", 80, "224.0.0.1", 5),
        ("192.0.2.1", 80, "192.0.2.1", 80),
        ("192.0.2.1", 80, "192.0.2.9", 0),
        ("192.0.2.1", 0, "192.0.2.9", 5),
        ("fd00::1", 80, "::", 5),
        ("fd00::1", 80, "ff02::1", 5),
        ("fd00::1", 80, "fd00::1", 80),
        ("fd00::1", 80, "fd00::2", 0),
    ];
    for (ours, our_port, theirs, their_port) in all {
        let syn = HandshakeClient::at(end(ours, our_port), end(theirs, their_port)).syn();
        let answer = it.syn(listener, &syn, at_millis(0));
        assert!(answer.syn_ack().is_none(), "{theirs} port {their_port}: {answer:?}");
    }
    assert_eq!(it.stats().half_open, 0);
}

fn links_do_not_share_their_addresses<H: HalfOpen>(make: &impl Fn() -> H) {
    let mut it = make();
    let listener = listen(&mut it, 8);
    let base = HandshakeClient::nth(9, true);
    let on = |zone| HandshakeClient { flow: FlowKey { zone: IfIndex(zone), ..base.flow }, ..base };
    let one = sent(it.syn(listener, &on(1).syn(), at_millis(0)));
    let _ = sent(it.syn(listener, &on(2).syn(), at_millis(0)));
    assert_eq!(it.stats().half_open, 2);
    let strayed = HandshakeAck { flow: on(3).flow, ..on(1).ack(&one) };
    assert!(matches!(it.ack(listener, &strayed, at_millis(1)), AckOutcome::Refused(_)));
    proven(it.ack(listener, &on(1).ack(&one), at_millis(1)));
    assert!(it.expects(&on(2).flow) && !it.expects(&on(1).flow));
}

fn a_flood_grows_nothing<H: HalfOpen>(make: &impl Fn() -> H) {
    let mut it = make();
    let listener = listen(&mut it, 128);
    let mut flood = |from: u32| {
        let most = (from..from + 20_000).map(|n| {
            let _ = it.syn(listener, &HandshakeClient::nth(n, n % 2 == 0).syn(), at_millis(0));
            it.stats().half_open
        });
        most.max().unwrap_or(0)
    };
    let (first, second) = (flood(0), flood(20_000));
    assert!(first < 20_000 && second <= first, "{first}, then {second}");
}

fn timed_work_keeps_to_its_units<H: HalfOpen>(make: &impl Fn() -> H) {
    let mut it = make();
    let listener = listen(&mut it, 8);
    for n in 0..500 {
        let _ = it.syn(listener, &HandshakeClient::nth(n, n % 2 == 0).syn(), at_millis(0));
    }
    let (mut turns, mut sent) = (0, 0);
    while it.deadline() != Instant::FAR {
        turns += 1;
        assert!(turns < 10_000, "timed work does not end");
        let now = at_millis(20_000 + turns * 200);
        let spent = it.work(now, Units(3), &mut |_| sent += 1);
        assert!(spent <= Units(3), "{spent:?} of 3");
    }
    assert_eq!(it.stats().half_open, 0);
}

#[cfg(test)]
mod tests {
    use floodwall_base::Randomness;

    use super::*;
    use crate::{CacheSettings, Secret, SynCache};

    #[test]
    fn the_syn_cache_keeps_the_contract() {
        check(|| {
            let mut random = Randomness::from_number(7).secret;
            let secret = Secret::random(&mut random);
            SynCache::new(CacheSettings::default(), secret, &mut random, at_millis(0))
        });
    }

    #[test]
    fn a_cache_of_one_row_keeps_the_contract() {
        check(|| {
            let mut random = Randomness::from_number(8).secret;
            let secret = Secret::random(&mut random);
            let settings = CacheSettings { rows: 1, ..CacheSettings::default() };
            SynCache::new(settings, secret, &mut random, at_millis(0))
        });
    }
}
