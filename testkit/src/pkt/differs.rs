//! Our own scripts, and where the kernel differs from them.
//!
//! Called by the conformance test and by `cargo xtask pkt`. Every script states a rule, which
//! Floodwall keeps; where the kernel does something else, [`KERNEL_DIFFERS`] gives the reason. Not
//! here: where others' scripts require what Floodwall does not do (`profile.rs`).

/// Scripts of ours that the kernel does not pass, each with its reason.
pub const KERNEL_DIFFERS: &[(&str, &str)] = &[
    (
        "a-fin-that-left-alone-comes-again-alone",
        "its window after a timeout is one packet, however small, so that the FIN waits",
    ),
    ("a-mark-halves-what-was-in-flight", "it sets PSH at the end of each burst"),
    (
        "a-repeated-syn-ack-measures-nothing-without-timestamps",
        "it takes three seconds wherever the handshake measured nothing, also where no timer of \
         its own ran out (RFC 6298 section 5.7)",
    ),
    ("an-mss-below-the-floor-is-raised", "its floor is 48 bytes (CVE-2019-11479)"),
    ("an-urgent-pointer-changes-nothing", "it takes the urgent byte out of the stream"),
    (
        "every-second-segment-counts-by-what-the-peer-can-send",
        "once a program has answered, it acknowledges when the data is read",
    ),
    (
        "a-window-that-is-scaled-after-the-handshake-is-not-waited-for",
        "it sets PSH at the end of each burst",
    ),
    ("how-often-a-syn-is-sent-can-be-set", "the runner has no way to set TCP_SYNCNT there"),
    (
        "limited-transmit-sends-something-new-for-the-first-duplicates",
        "it sets PSH at the end of each burst",
    ),
    ("the-peers-window-is-kept-to", "it sets PSH at the end of each burst"),
    ("the-filler-of-a-hole-may-tell-a-newer-window", "it sets PSH at the end of each burst"),
    ("the-window-of-a-syn-ack-is-never-scaled", "it acknowledges a SYN-ACK that answers its own"),
    (
        "unacknowledged-data-ends-a-connection-after-the-user-timeout",
        "it counts from the first retransmission, to which its timer is cut, and sends no reset",
    ),
    (
        "an-orphan-still-probes-a-zero-window",
        "it passes, in two minutes of real time, for which a test does not wait",
    ),
    ("window-scale-is-agreed-in-the-handshake", "it fills a window up with a short segment"),
];

/// Why the kernel does not pass a script of this name, where that is known.
#[must_use]
pub fn kernel_differs(name: &str) -> Option<&'static str> {
    KERNEL_DIFFERS.iter().find(|(of, _)| *of == name).map(|(_, why)| *why)
}

/// Whether a script of this name is of one family, and not of this one.
#[must_use]
pub fn is_of_other_family(name: &str, is_ipv6: bool) -> bool {
    name.ends_with(if is_ipv6 { "-v4" } else { "-v6" })
}
