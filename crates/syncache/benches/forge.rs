//! Forged cookies, 2^32 of them: how many are believed, against 256 that the layout gives.
//!
//! Run: `cargo bench -p floodwall-syncache --bench forge` for all acknowledgement numbers at one
//! flow (some minutes on one core, with progress), `-- --bits 28` for 2^28. The gate is open and
//! the budget larger than what is tried; one pair of keys is in force throughout. Fails beyond
//! three sigma. As a test it tries 2^12.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]

use std::env;

use floodwall_base::{Randomness, Seq};
use floodwall_syncache::contract::{Client, at_millis, listening};
use floodwall_syncache::{
    Ack, Acked, CacheSettings, CookiePolicy, HalfOpen, ListenSettings, Secret, SynCache,
};

fn main() {
    let words: Vec<_> = env::args().collect();
    let given = words.iter().position(|word| word == "--bits").and_then(|n| words.get(n + 1));
    let whole = words.iter().any(|word| word == "--bench");
    let bits: u32 = given.map_or(if whole { 32 } else { 12 }, |bits| bits.parse().unwrap());
    let believed = forge(1_u64 << bits.min(32));
    let expected = f64::from(bits.min(32)).exp2() / f64::from(1 << 24);
    let sigmas = (believed as f64 - expected).abs() / expected.sqrt();
    println!("{believed} of 2^{bits} believed, {expected} expected, {sigmas:.2} sigma");
    assert!(sigmas <= 3.0 || bits < 26, "not what the layout gives");
}

fn forge(tries: u64) -> u64 {
    let mut random = Randomness::from_number(24).secret;
    let settings =
        CacheSettings { verifications: (2_000_000_000, 2_000_000_000), ..CacheSettings::default() };
    let secret = Secret::random(&mut random);
    let mut it = SynCache::new(settings, secret, &mut random, at_millis(0));
    let always = ListenSettings { cookies: CookiePolicy::Always, ..listening(64) };
    let listener = it.listen(always).unwrap();
    let client = Client::nth(7, false);
    let parts = 64;
    for part in 0..parts {
        // Every part has a flow of its own: a run of fewer tries is not one flow's luck.
        let client = Client::nth(7 + part as u32, part % 2 == 1).starting_at(client.irs.0);
        // A tenth of a second each: the budget fills again, and one epoch holds all of them.
        let now = at_millis(60_000 + 100 * part);
        let _ = it.syn(listener, &client.syn(), now);
        for n in tries * part / parts..tries * (part + 1) / parts {
            let ack = Ack {
                flow: client.flow,
                seq: client.irs + 1,
                ack: Seq((n as u32).wrapping_mul(0x9e37_79b1)),
                timestamp: None,
            };
            if let Acked::Proven(proof) = it.ack(listener, &ack, now) {
                it.accepted(proof.slot());
            }
        }
        if tries > 1 << 24 {
            let believed = it.stats().cookies_received;
            eprintln!("{} of {parts}: {believed} believed", part + 1);
        }
    }
    let stats = it.stats();
    assert_eq!(stats.over_budget, 0, "each was computed");
    stats.cookies_received
}
