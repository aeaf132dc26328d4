//! The SYN cache: any offer through a cookie and back, and any sequence of events against a model.

use std::collections::BTreeMap;

use floodwall_base::{Randomness, Seq, Units};
use floodwall_syncache::contract::{HandshakeClient, at_millis, listening};
use floodwall_syncache::{
    AckOutcome, CacheSettings, CookiePolicy, HalfOpen, HandshakeAck, ListenSettings, ListenerId,
    Proven, ProvenBy, ResetReply, Secret, SynAnswer, SynCache, SynOptions,
};

fn cache(settings: CacheSettings, cookies: CookiePolicy) -> (SynCache, ListenerId) {
    let mut random = Randomness::from_number(99).secret;
    let secret = Secret::random(&mut random);
    let mut it = SynCache::new(settings, secret, &mut random, at_millis(0));
    let listen = ListenSettings { cookies, ..listening(4) };
    let listener = it.listen(listen).expect("the first listener");
    (it, listener)
}

/// Bytes of the input, zero when they are over.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    fn some<T>(&mut self, of: impl Fn(&mut Self) -> T) -> Option<T> {
        (self.u8() & 1 == 1).then(|| of(self))
    }

    fn client(&mut self) -> HandshakeClient {
        let v6 = self.u8() & 1 == 1;
        let options = SynOptions {
            mss: self.some(Self::u16),
            window_scale: self.some(Self::u8),
            sack: self.u8() & 1 == 1,
            timestamp: self.some(Self::u32),
            ecn: self.u8() & 1 == 1,
        };
        HandshakeClient { options, ..HandshakeClient::nth(self.u32() >> 8, v6) }
            .starting_at(self.u32())
    }
}

/// One SYN answered by cookie, its ACK, and one bit of that ACK changed.
///
/// # Panics
/// A cookie carries more than was offered, is not accepted, or is accepted when changed.
pub fn cookie(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (mut it, listener) = cache(CacheSettings::default(), CookiePolicy::Always);
    let client = bytes.client();
    let at = at_millis(60_000 + u64::from(bytes.u16()));
    let answer = it.syn(listener, &client.syn(), at);
    let Some(answer) = answer.syn_ack().copied() else { return };
    let good = client.ack(&answer);
    let bit = bytes.u8();
    let mut bad = good;
    match bit {
        0..32 => bad.seq = Seq(bad.seq.0 ^ 1 << bit),
        32..64 => bad.ack = Seq(bad.ack.0 ^ 1 << (bit - 32)),
        64..80 => bad.flow.remote.port ^= 1 << (bit - 64),
        80..96 => bad.flow.zone.0 ^= 1 << (bit - 80),
        _ => bad.timestamp = if bad.timestamp.is_some() { None } else { Some((0, 0)) },
    }
    // One in 2^24 of these is a cookie by chance; a finding would have to be repeated.
    let acked = it.ack(listener, &bad, at);
    let flipped = |n: u64| it_again(&client, &bad, n);
    assert!(matches!(acked, AckOutcome::Refused(_)) || !(1..4).all(flipped), "{bad:?} is accepted");
    let AckOutcome::Proven(proof) = it.ack(listener, &good, at) else {
        panic!("not accepted: {good:?}");
    };
    let offered = client.options;
    assert_eq!((proof.by(), proof.irs(), proof.iss()), (ProvenBy::Cookie, client.irs, answer.seq));
    assert!(proof.mss().0 <= client.syn().mss() && proof.mss().0 >= 88);
    assert_eq!(proof.window_scale().is_some(), offered.window_scale.is_some());
    let most = offered.window_scale.map_or(0, |shift| shift.min(14));
    assert!(proof.window_scale().is_none_or(|(theirs, _)| theirs <= most));
    assert_eq!(
        (proof.sack(), proof.timestamps().is_some()),
        (offered.sack, offered.timestamp.is_some())
    );
}

/// Whether the same change is accepted under the `n`th other key as well.
fn it_again(client: &HandshakeClient, bad: &HandshakeAck, n: u64) -> bool {
    let mut random = Randomness::from_number(n).secret;
    let secret = Secret::random(&mut random);
    let mut it = SynCache::new(CacheSettings::default(), secret, &mut random, at_millis(0));
    let always = ListenSettings { cookies: CookiePolicy::Always, ..listening(4) };
    let listener = it.listen(always).expect("the first listener");
    let _ = it.syn(listener, &client.syn(), at_millis(60_000));
    matches!(it.ack(listener, bad, at_millis(60_000)), AckOutcome::Proven(_))
}

/// The model's record of a client: the sequence numbers that it was answered with, and the
/// timestamps that came with them.
type Known = BTreeMap<(u8, u32), Vec<(Seq, Option<u32>)>>;

/// How many handshakes an input completed, by entry and by cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completed {
    /// By an entry of the cache.
    pub cache: u32,
    /// By a cookie alone.
    pub cookie: u32,
}

impl Completed {
    /// Counts a proof, which is of an answer that was given.
    fn count(&mut self, proof: &Proven, answers: &[(Seq, Option<u32>)], policy: CookiePolicy) {
        assert!(answers.iter().any(|(iss, _)| *iss == proof.iss()), "proven out of nothing");
        match proof.by() {
            ProvenBy::Cache => self.cache += 1,
            ProvenBy::Cookie => self.cookie += 1,
        }
        assert!(policy != CookiePolicy::Never || proof.by() == ProvenBy::Cache);
    }
}

/// Time passes without packets: nothing is left.
fn all_is_over(it: &mut SynCache, mut millis: u64) {
    for _ in 0..330 {
        millis += 200;
        it.work(at_millis(millis), Units(64), &mut |_| {});
    }
    assert_eq!(it.stats().half_open, 0, "something lives for ever");
}

/// Events of two bytes and more, on a cache of two rows: nothing is proven that was not answered,
/// every count adds up, and everything is over in the end.
///
/// # Panics
/// One of these is not so.
pub fn syncache(data: &[u8]) {
    play(data);
}

/// One of the clients; a quarter of them has no timestamps.
fn client(n: u8) -> HandshakeClient {
    let client = HandshakeClient::nth(u32::from(n >> 1), n & 1 == 1);
    if n & 6 == 6 { client.timeless() } else { client }
}

/// The same; what came of it, so that a test can tell whether inputs reach what they are for.
///
/// # Panics
/// As [`syncache`].
pub fn play(data: &[u8]) -> Completed {
    let mut completed = Completed::default();
    let mut bytes = Bytes(data);
    let settings = CacheSettings { rows: 2, entries: 40, prefix_entries: 6, ..Default::default() };
    let policies = [CookiePolicy::Never, CookiePolicy::Overflow, CookiePolicy::Always];
    let policy = policies[usize::from(bytes.u8()) % policies.len()];
    let (mut it, mut listener) = cache(settings, policy);
    let (mut known, mut slots, mut millis) = (Known::new(), Vec::new(), 60_000);
    while !bytes.0.is_empty() {
        let (what, n) = (bytes.u8(), bytes.u8());
        let at = at_millis(millis);
        let client = client(n).starting_at(u32::from(what >> 6));
        match what & 7 {
            0..=2 => {
                let answer = it.syn(listener, &client.syn(), at);
                assert!(policy != CookiePolicy::Never || !matches!(answer, SynAnswer::Cookie(_)));
                if let Some(answer) = answer.syn_ack() {
                    let key = (n, answer.ack.0);
                    let stamp = answer.timestamp.map(|(value, _)| value);
                    known.entry(key).or_default().push((answer.seq, stamp));
                }
            }
            3 | 4 => {
                let key = (n, client.irs.0 + 1);
                let answers = known.get(&key).map_or(&[][..], Vec::as_slice);
                let one = answers.get(usize::from(what >> 3 & 3)).copied();
                let (iss, stamp) = one.unwrap_or((Seq(7), None));
                let mine = client.options.timestamp;
                let timestamp = mine.map(|mine| (mine + 1, stamp.unwrap_or(0)));
                let ack = HandshakeAck {
                    flow: client.flow,
                    seq: client.irs + 1,
                    ack: iss + 1,
                    timestamp,
                };
                if let AckOutcome::Proven(proof) = it.ack(listener, &ack, at) {
                    completed.count(&proof, answers, policy);
                    assert_eq!(proof.listener(), listener);
                    slots.push(proof.slot());
                }
            }
            5 => {
                let seq = client.irs + u32::from(what >> 3);
                let reset = it.reset(&client.flow, seq, at);
                assert!(reset != ResetReply::Removed || known.contains_key(&(n, seq.0)));
            }
            6 => {
                slots.pop().into_iter().for_each(|slot| it.accepted(slot));
                millis += u64::from(n) * u64::from(what >> 3);
                it.work(at_millis(millis), Units(u32::from(what >> 3)), &mut |again| {
                    assert!(known.values().flatten().any(|(iss, _)| *iss == again.seq));
                });
            }
            _ if n < 16 => {
                it.unlisten(listener);
                slots.clear();
                let listen = ListenSettings { cookies: policy, ..listening(4) };
                listener = it.listen(listen).expect("as many as before");
            }
            _ => {
                it.unreachable(&client.flow, Seq(u32::from(what)));
            }
        }
        let stats = it.stats();
        assert!(stats.half_open <= 40 && stats.added - stats.left() == stats.half_open);
        let listed = it.listener_stats(listener).expect("it listens");
        assert!(listed.waiting <= 4 && listed.waiting == slots.len() as u64);
    }
    all_is_over(&mut it, millis);
    completed
}
