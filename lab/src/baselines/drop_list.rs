//! The listen queue before the SYN cache: a linear list of half-open connections, random drop.
//!
//! Models: FreeBSD 4.4 (November 2001), `sonewconn` and `sodropablereq` of `kern/uipc_socket2.c`
//! with `tcp_input`: each SYN makes a socket on the listener's list of incomplete connections, one
//! and a half times the backlog long; when it is full, one at a random distance from its head is
//! dropped, which is reached by walking.
//! Simplified: an element keeps what a handshake needs instead of socket and control block (736
//! bytes there), finding an element by its addresses costs nothing (theirs was hashed), completed
//! connections take no places of the list, and a list shorter than 8 has 8 places. All of it is
//! kinder to the list than it was.
//! Serves: the plan `syn-flood`, elements walked for each SYN and the clients that connect
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use floodwall_base::{FlowKey, HashKey, Instant, Mss, PublicRandom, Seq, Units};
use floodwall_syncache::{
    AcceptSlot, AckOutcome, AckRefusal, CookieMoment, CookiePolicy, HalfOpen, HandshakeAck,
    ListenSettings, ListenerId, ListenerStats, Proven, ProvenParts, ProvenTimestamps, ResetReply,
    Stats, SynAck, SynAnswer, SynRefusal, SynSegment, Unreachable,
};

/// How often a SYN-ACK is sent again.
const RETRANSMITS: u8 = floodwall_base::limits::SYN_ACK_RETRANSMITS;

/// One half-open connection and its neighbours in the list.
#[derive(Clone, Copy, Debug)]
struct Element {
    syn: SynSegment,
    iss: Seq,
    listener: ListenerId,
    retransmits: u8,
    due: Instant,
    prev: Option<u32>,
    next: Option<u32>,
}

/// One listener and its list.
#[derive(Debug)]
struct Listener {
    generation: u16,
    settings: Option<ListenSettings>,
    head: Option<u32>,
    tail: Option<u32>,
    len: usize,
    waiting: usize,
}

/// A linear list of half-open connections with random drop, as BSD had before the SYN cache.
#[derive(Debug)]
pub struct DropList {
    elements: Vec<Option<Element>>,
    free: Vec<u32>,
    by_flow: BTreeMap<FlowKey, u32>,
    timers: BTreeSet<(Instant, u32)>,
    listeners: Vec<Listener>,
    random: PublicRandom,
    walked: u64,
    dropped: u64,
    stats: Stats,
    spent: Units,
}

impl DropList {
    /// An empty one.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            elements: Vec::new(),
            free: Vec::new(),
            by_flow: BTreeMap::new(),
            timers: BTreeSet::new(),
            listeners: Vec::new(),
            random: PublicRandom::new(seed),
            walked: 0,
            dropped: 0,
            stats: Stats::NONE,
            spent: Units(0),
        }
    }

    /// Elements walked over so far, and SYNs that made it walk.
    #[must_use]
    pub const fn walked(&self) -> (u64, u64) {
        (self.walked, self.dropped)
    }

    fn listener(&self, id: ListenerId) -> Option<(&Listener, ListenSettings)> {
        let (slot, generation) = id.parts();
        let listener = self.listeners.get(usize::from(slot))?;
        (listener.generation == generation).then_some((listener, listener.settings?))
    }

    fn element(&self, at: u32) -> Option<&Element> {
        self.elements.get(at as usize)?.as_ref()
    }

    fn list(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.get_mut(usize::from(id.parts().0))
    }

    fn set_next(&mut self, at: u32, next: Option<u32>) {
        if let Some(Some(element)) = self.elements.get_mut(at as usize) {
            element.next = next;
        }
    }

    fn set_prev(&mut self, at: u32, prev: Option<u32>) {
        if let Some(Some(element)) = self.elements.get_mut(at as usize) {
            element.prev = prev;
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some(element) = self.elements.get_mut(at as usize).and_then(Option::take) else {
            return;
        };
        let Element { prev, next, listener, .. } = element;
        prev.into_iter().for_each(|prev| self.set_next(prev, next));
        next.into_iter().for_each(|next| self.set_prev(next, prev));
        if let Some(list) = self.list(listener) {
            list.head = if prev.is_none() { next } else { list.head };
            list.tail = if next.is_none() { prev } else { list.tail };
            list.len -= 1;
        }
        self.by_flow.remove(&element.syn.flow);
        self.timers.remove(&(element.due, at));
        self.free.push(at);
    }

    fn append(&mut self, mut element: Element) {
        let at = self.free.pop().unwrap_or(self.elements.len() as u32);
        let Some(list) = self.list(element.listener) else { return };
        element.prev = list.tail.replace(at);
        list.head = list.head.or(Some(at));
        list.len += 1;
        element.prev.into_iter().for_each(|prev| self.set_next(prev, Some(at)));
        self.by_flow.insert(element.syn.flow, at);
        self.timers.insert((element.due, at));
        match self.elements.get_mut(at as usize) {
            Some(free) => *free = Some(element),
            None => self.elements.push(Some(element)),
        }
    }

    /// Drops one at random: a walk from the head.
    fn drop_one(&mut self, id: ListenerId) {
        let Some((list, _)) = self.listener(id) else { return };
        let (mut at, distance) = (list.head, list.len as u64);
        let distance = self.random.below(distance);
        for _ in 0..distance {
            at = at.and_then(|at| self.element(at)).and_then(|element| element.next);
        }
        self.walked += distance + 1;
        self.dropped += 1;
        at.into_iter().for_each(|at| self.unlink(at));
        self.stats.row_overflow += 1;
    }

    fn syn_ack(&self, element: &Element, settings: &ListenSettings, now: Instant) -> SynAck {
        let SynSegment { flow, seq, options, .. } = element.syn;
        let v4 = flow.remote.addr.to_ipv4_mapped().is_some();
        SynAck {
            flow,
            seq: element.iss,
            ack: seq + 1,
            window: settings.window,
            mss: Some(if v4 { settings.mss.0 } else { settings.mss.1 }),
            window_scale: options.window_scale.map(|_| settings.window_scale),
            sack: options.sack && settings.sack,
            timestamp: options
                .timestamp
                .filter(|_| settings.timestamps)
                .map(|echo| ((now.as_nanos() >> 20) as u32, echo)),
            ecn: options.ecn && settings.ecn,
        }
    }

    fn proof(&self, element: &Element, ack: &HandshakeAck, settings: &ListenSettings) -> Proven {
        let SynSegment { flow, seq, options, .. } = element.syn;
        let shifts = options.window_scale.map(|theirs| (theirs.min(14), settings.window_scale));
        Proven::of_baseline(ProvenParts {
            flow,
            slot: AcceptSlot::of_baseline(element.listener),
            irs: seq,
            iss: element.iss,
            mss: Mss(element.syn.mss()),
            window_scale: shifts,
            sack: options.sack && settings.sack,
            timestamps: ack
                .timestamp
                .filter(|_| options.timestamp.is_some())
                .map(|(recent, last_sent)| ProvenTimestamps { recent, last_sent }),
            ecn: options.ecn && settings.ecn,
            retransmitted: element.retransmits,
        })
    }

    fn refuse(&mut self, why: AckRefusal) -> AckOutcome {
        match why {
            AckRefusal::Unknown => self.stats.unasked += 1,
            AckRefusal::BadAck => self.stats.bad_ack += 1,
            AckRefusal::BadSeq => self.stats.bad_seq += 1,
            AckRefusal::AcceptFull => self.stats.accept_full += 1,
            AckRefusal::Budget => self.stats.over_budget += 1,
            AckRefusal::NoListener => self.stats.no_listener += 1,
        }
        AckOutcome::Refused(why)
    }
}

impl HalfOpen for DropList {
    fn listen(&mut self, settings: ListenSettings) -> Option<ListenerId> {
        let free = self.listeners.iter().position(|it| it.settings.is_none());
        let slot = free.unwrap_or(self.listeners.len());
        if free.is_none() {
            let (head, tail) = (None, None);
            let new = Listener { generation: 0, settings: None, head, tail, len: 0, waiting: 0 };
            self.listeners.push(new);
        }
        let listener = self.listeners.get_mut(slot)?;
        listener.settings = Some(settings);
        Some(ListenerId::of_baseline(u16::try_from(slot).ok()?, listener.generation))
    }

    fn unlisten(&mut self, id: ListenerId) {
        if self.listener(id).is_none() {
            return;
        }
        while let Some(at) = self.list(id).and_then(|list| list.head) {
            self.unlink(at);
        }
        if let Some(list) = self.list(id) {
            list.settings = None;
            list.generation = list.generation.wrapping_add(1);
            list.waiting = 0;
        }
    }

    fn flow_key(&self) -> HashKey {
        // Its map needs no hash: what the connections' table gets is as good as any, in a lab.
        HashKey::new(1, 2)
    }

    fn syn_hashed(
        &mut self,
        id: ListenerId,
        syn: &SynSegment,
        _hash: u64,
        at: CookieMoment,
    ) -> SynAnswer {
        self.spent = self.spent.plus(Units(1));
        let Some((list, settings)) = self.listener(id) else {
            self.stats.no_listener += 1;
            return SynAnswer::Refused(SynRefusal::NoListener);
        };
        let full = list.len >= (settings.backlog * 3 / 2).max(8);
        if !syn.is_answerable() {
            self.stats.implausible += 1;
            return SynAnswer::Refused(SynRefusal::Implausible);
        }
        if let Some(known) = self.by_flow.get(&syn.flow).copied() {
            let element = self.element(known).copied().filter(|it| it.syn.seq == syn.seq);
            if let Some(element) = element {
                self.stats.duplicates += 1;
                return SynAnswer::Again(self.syn_ack(&element, &settings, at.now));
            }
            self.unlink(known);
        } else if full {
            self.drop_one(id);
        }
        let element = Element {
            syn: *syn,
            iss: Seq(self.random.next_u64() as u32),
            listener: id,
            retransmits: 0,
            due: at.now + Duration::from_secs(1),
            prev: None,
            next: None,
        };
        self.append(element);
        self.stats.added += 1;
        SynAnswer::Cached(self.syn_ack(&element, &settings, at.now))
    }

    fn ack_hashed(
        &mut self,
        id: ListenerId,
        ack: &HandshakeAck,
        _hash: u64,
        _at: CookieMoment,
    ) -> AckOutcome {
        self.spent = self.spent.plus(Units(1));
        let Some((list, settings)) = self.listener(id) else {
            return self.refuse(AckRefusal::NoListener);
        };
        let has_room = list.waiting < settings.backlog;
        let known = self.by_flow.get(&ack.flow).copied();
        let Some((at, element)) = known.and_then(|at| Some((at, *self.element(at)?))) else {
            return self.refuse(AckRefusal::Unknown);
        };
        if ack.ack != element.iss + 1 {
            return self.refuse(AckRefusal::BadAck);
        }
        if !ack.seq.is_within(element.syn.seq + 1, u32::from(settings.window)) {
            return self.refuse(AckRefusal::BadSeq);
        }
        if !has_room {
            return self.refuse(AckRefusal::AcceptFull);
        }
        self.unlink(at);
        self.stats.completed += 1;
        self.list(id).into_iter().for_each(|list| list.waiting += 1);
        AckOutcome::Proven(self.proof(&element, ack, &settings))
    }

    fn accepted(&mut self, slot: AcceptSlot) {
        if self.listener(slot.listener()).is_some()
            && let Some(list) = self.list(slot.listener())
        {
            list.waiting = list.waiting.saturating_sub(1);
        }
    }

    fn reset(&mut self, flow: &FlowKey, seq: Seq, _at: CookieMoment) -> ResetReply {
        let known = self.by_flow.get(flow).copied();
        match known.and_then(|at| Some((at, self.element(at)?.syn.seq))) {
            Some((at, irs)) if seq == irs + 1 => {
                self.unlink(at);
                self.stats.reset += 1;
                ResetReply::Removed
            }
            _ => ResetReply::Ignored,
        }
    }

    fn unreachable(&mut self, _flow: &FlowKey, _quoted: Seq) -> Unreachable {
        Unreachable::Ignored
    }

    fn unsent(&mut self, flow: &FlowKey, _at: CookieMoment) {
        if let Some(at) = self.by_flow.get(flow).copied() {
            self.unlink(at);
            self.stats.unsent += 1;
        }
    }

    fn expects(&self, flow: &FlowKey) -> bool {
        self.by_flow.contains_key(flow)
    }

    // The list has no cookies.
    fn set_cookies(&mut self, _: ListenerId, _: CookiePolicy) {}

    fn backlog(&self, listener: ListenerId) -> Option<usize> {
        self.listener(listener).map(|(_, settings)| settings.backlog)
    }

    fn recognizes(&self, ack: &HandshakeAck) -> bool {
        let element = self.by_flow.get(&ack.flow).and_then(|at| self.element(*at));
        element.is_some_and(|element| ack.ack == element.iss + 1)
    }

    fn work(&mut self, at: CookieMoment, granted: Units, send: &mut impl FnMut(&SynAck)) -> Units {
        let mut spent = Units(0);
        while spent < granted {
            let due = self.timers.first().copied().filter(|(due, _)| *due <= at.now);
            let Some((due, which)) = due else { break };
            spent = spent.plus(Units(1));
            let Some(mut element) = self.element(which).copied() else { break };
            let settings = self.listener(element.listener).map(|(_, settings)| settings);
            let (Some(settings), true) = (settings, element.retransmits < RETRANSMITS) else {
                self.unlink(which);
                self.stats.stale += 1;
                continue;
            };
            self.timers.remove(&(due, which));
            element.retransmits += 1;
            element.due = due + Duration::from_secs(1 << element.retransmits);
            self.timers.insert((element.due, which));
            if let Some(place) = self.elements.get_mut(which as usize) {
                *place = Some(element);
            }
            self.stats.retransmitted += 1;
            send(&self.syn_ack(&element, &settings, at.now));
        }
        spent
    }

    fn deadline(&self) -> Instant {
        self.timers.first().map_or(Instant::FAR, |(due, _)| *due)
    }

    fn take_spent(&mut self) -> Units {
        core::mem::take(&mut self.spent)
    }

    fn stats(&self) -> Stats {
        Stats { half_open: self.by_flow.len() as u64, ..self.stats }
    }

    fn listener_stats(&self, listener: ListenerId) -> Option<ListenerStats> {
        let (list, _) = self.listener(listener)?;
        let (half_open, waiting) = (list.len as u64, list.waiting as u64);
        Some(ListenerStats { half_open, waiting, ..ListenerStats::default() })
    }
}

#[cfg(test)]
mod tests {
    use floodwall_syncache::contract;

    use super::*;

    #[test]
    fn the_list_keeps_the_contract_of_half_open_connections() {
        contract::check(|| DropList::new(7));
    }

    #[test]
    fn a_full_list_walks_three_quarters_of_its_backlog_for_each_syn() {
        for backlog in [128, 1024] {
            let mut list = DropList::new(3);
            let listener = list.listen(contract::listening(backlog)).unwrap();
            for n in 0..20_000 {
                let syn = contract::HandshakeClient::nth(n, n % 2 == 0).syn();
                let _ = list.syn(listener, &syn, contract::at_millis(0));
            }
            let (walked, dropped) = list.walked();
            let mean = walked as f64 / dropped as f64;
            assert!((mean / (0.75 * backlog as f64) - 1.0).abs() < 0.05, "{mean} of {backlog}");
        }
    }
}
