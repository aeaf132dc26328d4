//! `FlowCredits`: what each established flow, and each source prefix, may cost under pressure
//! without progress.
//!
//! Used by `table/triage.rs` for segments that a connection expects, which happens under pressure
//! only. A segment makes progress where its text or FIN ends further than any before, or where it
//! acknowledges more. Progress earns [`EARNED`] tokens and one more for each [`TOKEN_BYTES`], for
//! the flow and for its prefix (IPv4 /24, IPv6 /48), up to [`FLOW_MAX`] and [`PREFIX_MAX`]. A
//! segment without progress costs one of each, and is unverified where there is none. Each
//! [`REST`] fills up to [`FLOW_AT_REST`] and [`PREFIX_AT_REST`]. So replays, duplicates and
//! repeated acknowledgments of real connections wait behind what makes progress, with all that is
//! unverified, where their prefix gives way to others. The rules are those of the program at an
//! `xdp:` interface.
//! Invariant: progress never lacks tokens; what a connection received without triage counts as
//! progress.
//!
//! # Under flood
//! Reachable by any peer with a connection. Bound: 20 bytes a place and [`PREFIXES`] cells,
//! allocated at the start. Worst work per segment: one hash of a prefix. A prefix that shares a
//! cell with a loud one loses its tokens with it: its segments with progress lose nothing.
//! Nothing is dropped here. Shown by: `security::replays`, the drill's phases `replayed`.

use core::cell::Cell;
use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{HashKey, Instant, Seq};

/// Tokens for progress, and bytes of progress that are worth another one.
const EARNED: u32 = 4;
const TOKEN_BYTES: u32 = 512;
/// Tokens that a flow may keep, that a new one has, and that each [`REST`] is worth.
const FLOW_MAX: u32 = 1024;
const FLOW_AT_FIRST: u32 = 64;
const FLOW_AT_REST: u32 = 16;
/// Tokens that a prefix may keep, and that each [`REST`] is worth.
const PREFIX_MAX: u32 = 4096;
const PREFIX_AT_REST: u32 = 256;
const REST: Duration = Duration::from_millis(250);
/// Cells that prefixes are hashed into.
const PREFIXES: usize = 256;
/// How far a flow has come: where what the peer sent ends, and what it has acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FlowReach {
    pub(crate) end: Seq,
    pub(crate) ack: Seq,
}

/// Where a flow is: what its connection has received and what is acknowledged, and by how many
/// bytes segments that are expected may be further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowPosition {
    pub(crate) at: FlowReach,
    pub(crate) ahead: (u32, u32),
}

impl FlowPosition {
    /// Updates how far a flow has come by this, and by a segment that reaches `to`: by how many
    /// bytes each is progress.
    fn advance(&self, reach: &mut FlowReach, to: FlowReach) -> (u32, u32) {
        let (text, text_gained) = forward(&mut reach.end, self.at.end, self.ahead.0, to.end);
        let (acked, acked_gained) = forward(&mut reach.ack, self.at.ack, self.ahead.1, to.ack);
        (text.saturating_add(acked), text_gained.saturating_add(acked_gained))
    }
}

/// The same of one direction.
fn forward(reach: &mut Seq, at: Seq, ahead: u32, to: Seq) -> (u32, u32) {
    let mut unseen = 0;
    if reach.since(at) > ahead {
        unseen = at.since(*reach);
        *reach = at;
    }
    // No segment takes a flow beyond what is expected.
    let to = if at.is_before(to) { at + to.since(at).min(ahead) } else { at };
    let gained = if reach.is_before(to) { to.since(*reach) } else { 0 };
    *reach += gained;
    (unseen, gained)
}

/// Tokens of a flow or of a prefix, and when they were last filled up.
#[derive(Clone, Copy, Default, Debug)]
struct TokenCount {
    tokens: u16,
    /// In steps of [`REST`], which wrap.
    filled: u16,
}

impl TokenCount {
    fn earn(&mut self, bytes: u32, most: u32) {
        let earned = EARNED.saturating_add(bytes / TOKEN_BYTES);
        self.tokens = u32::from(self.tokens).saturating_add(earned).min(most) as u16;
    }

    /// Takes one, if there is any.
    fn take(&mut self, step: u16, at_rest: u32) -> bool {
        if step != core::mem::replace(&mut self.filled, step) {
            self.tokens = self.tokens.max(at_rest as u16);
        }
        let has_any = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has_any
    }
}

/// The credit of the connection at a place.
#[derive(Clone, Copy, Default, Debug)]
struct FlowCredit {
    /// The generation of the place, for which all this is.
    generation: u32,
    is_known: bool,
    count: TokenCount,
    reach: FlowReach,
}

/// The credits of all connections of a shard, and of their prefixes.
pub(crate) struct FlowCredits {
    flows: Box<[Cell<FlowCredit>]>,
    prefixes: Box<[Cell<TokenCount>]>,
    key: HashKey,
}

impl FlowCredits {
    /// Credits for so many connections; for none where no segment is to cost anything. Allocates
    /// all memory now.
    pub(crate) fn new(connections: usize, key: HashKey) -> Self {
        let full = TokenCount { tokens: PREFIX_MAX as u16, filled: 0 };
        Self {
            flows: (0..connections).map(|_| Cell::default()).collect(),
            prefixes: (0..PREFIXES).map(|_| Cell::new(full)).collect(),
            key,
        }
    }

    /// Whether a segment of `peer` that reaches `to` has its token: of the connection at this place
    /// and generation, which has this position.
    pub(crate) fn grants(
        &self,
        (index, generation): (u32, u32),
        peer: IpAddr,
        (position, to): (FlowPosition, FlowReach),
        now: Instant,
    ) -> bool {
        let Some(flow) = self.flows.get(index as usize) else { return true };
        let Some(prefix) = self.prefixes.get(self.cell_of(peer)) else { return true };
        let (mut credit, mut all) = (flow.get(), prefix.get());
        if credit.generation != generation || !credit.is_known {
            let count = TokenCount { tokens: FLOW_AT_FIRST as u16, filled: 0 };
            credit = FlowCredit { generation, is_known: true, count, reach: position.at };
        }
        let (unseen, gained) = position.advance(&mut credit.reach, to);
        let progress = unseen.saturating_add(gained);
        if progress > 0 {
            credit.count.earn(progress, FLOW_MAX);
            all.earn(progress, PREFIX_MAX);
        }
        let step = (now.as_nanos() / REST.as_nanos() as u64) as u16;
        let grants =
            gained > 0 || credit.count.take(step, FLOW_AT_REST) && all.take(step, PREFIX_AT_REST);
        flow.set(credit);
        prefix.set(all);
        grants
    }

    fn cell_of(&self, peer: IpAddr) -> usize {
        let prefix = match peer.to_canonical() {
            IpAddr::V4(peer) => u64::from(peer.to_bits() >> 8),
            IpAddr::V6(peer) => (peer.to_bits() >> 80) as u64 | 1 << 63,
        };
        self.key.words(&[prefix]) as usize % PREFIXES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
    const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1));

    fn credits(connections: usize) -> FlowCredits {
        FlowCredits::new(connections, HashKey::new(1, 2))
    }

    const fn reach(end: u32, ack: u32) -> FlowReach {
        FlowReach { end: Seq(end), ack: Seq(ack) }
    }

    /// With a window of 10,000 bytes, and 5,000 in flight.
    const fn position(end: u32, ack: u32) -> FlowPosition {
        FlowPosition { at: reach(end, ack), ahead: (10_000, 5000) }
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// How many of so many replays of what was taken already have a token.
    fn granted(credits: &FlowCredits, index: u32, peer: IpAddr, count: u32, now: Instant) -> u32 {
        let old = (position(5000, 900), reach(4000, 900));
        (0..count).map(|_| u32::from(credits.grants((index, 7), peer, old, now))).sum()
    }

    #[test]
    fn replays_have_the_tokens_of_their_flow_and_no_more() {
        for peer in [V4, V6] {
            let credits = credits(4);
            assert_eq!(granted(&credits, 0, peer, 10_000, at(0)), FLOW_AT_FIRST);
            // A quarter of a second later.
            assert_eq!(granted(&credits, 0, peer, 10_000, at(260)), FLOW_AT_REST);
            assert_eq!(granted(&credits, 0, peer, 10_000, at(270)), 0);
            // Another flow of the prefix has its own, and so has the next one of this place.
            assert_eq!(granted(&credits, 1, peer, 10, at(270)), 10);
            assert!(credits.grants((0, 8), peer, (position(1, 1), reach(1, 1)), at(270)));
        }
    }

    #[test]
    fn progress_has_no_need_of_tokens_and_renews_them() {
        for peer in [V4, V6] {
            let credits = credits(1);
            assert_eq!(granted(&credits, 0, peer, 1000, at(0)), FLOW_AT_FIRST);
            // 1,024 bytes more, in the window but not in order; then what is acknowledged.
            let more = |to| credits.grants((0, 7), peer, (position(5000, 900), to), at(1));
            assert!(more(reach(6024, 900)));
            assert!(!(0..7).all(|_| more(reach(6024, 900))), "the same again is no progress");
            assert!(more(reach(5000, 901)));
            assert_eq!(granted(&credits, 0, peer, 1000, at(2)), EARNED);
            // What the connection took while there was no pressure.
            let later = (position(25_000, 900), reach(4000, 900));
            let renewed = (0..1000).filter(|_| credits.grants((0, 7), peer, later, at(3))).count();
            assert_eq!(renewed as u32, EARNED + (25_000 - 6024) / TOKEN_BYTES);
            // However much that was.
            for far in [2_000_000_000, 4_000_000_000, 10_000, u32::MAX - 10] {
                let to = reach(far.wrapping_add(100), 900);
                assert!(credits.grants((0, 7), peer, (position(far, 900), to), at(4)), "{far}");
            }
        }
    }

    #[test]
    fn progress_is_known_however_far_a_flow_has_come_since_it_was_last_looked_at() {
        // Without tokens, past half of the circle and nearly all of it.
        for far in
            [1 << 30, (1 << 31) - 10, 1 << 31, (1 << 31) + 10_000, 3 << 30, u32::MAX - 20_000]
        {
            let credits = credits(1);
            let old = (position(5000, 900), reach(4000, 900));
            while credits.grants((0, 7), V4, old, at(0)) {}
            let at_far = |end, ack| (position(far, far), reach(end, ack));
            assert!(credits.grants((0, 7), V4, at_far(far.wrapping_add(100), far), at(0)), "{far}");
            while credits.grants((0, 7), V4, at_far(far, far), at(0)) {}
            assert!(credits.grants((0, 7), V4, at_far(far, far.wrapping_add(9)), at(0)), "{far}");
        }
    }

    #[test]
    fn what_does_not_fit_the_window_is_no_progress() {
        for peer in [V4, V6] {
            let credits = credits(1);
            let full = FlowPosition { at: reach(5000, 900), ahead: (0, 0) };
            let probes = (0..1000_u32)
                .filter(|n| credits.grants((0, 7), peer, (full, reach(5001 + n, 900)), at(0)));
            assert_eq!(probes.count() as u32, FLOW_AT_FIRST);
        }
    }

    #[test]
    fn many_flows_of_a_prefix_have_its_tokens_and_take_none_of_another_one() {
        let many = 200;
        for (loud, quiet) in [(V4, V6), (V6, V4)] {
            let credits = credits(many + 1);
            let all: u32 = (0..many as u32).map(|n| granted(&credits, n, loud, 64, at(0))).sum();
            assert_eq!(all, PREFIX_MAX);
            assert_eq!(granted(&credits, many as u32, quiet, 1000, at(0)), FLOW_AT_FIRST);
            let progress = (position(5000, 900), reach(5001, 900));
            assert!(credits.grants((0, 7), loud, progress, at(0)), "progress is never refused");
        }
    }

    #[test]
    fn without_credits_everything_passes() {
        assert_eq!(granted(&credits(0), 0, V4, 10_000, at(0)), 10_000);
    }
}
