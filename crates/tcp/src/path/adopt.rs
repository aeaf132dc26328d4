//! The connection's side of path MTU discovery: it adopts the size of its path, and reports what
//! its segments show of it.
//!
//! Called where a segment is built, an acknowledgment arrives, a timer expires, or a router
//! reports.

use core::hint::cold_path;

use floodwall_base::{Family, Instant, Seq};

use super::{BLACK_HOLE_MSS, BLACK_HOLE_TRIES, FRAGMENT_TRIES, LEAST_MSS_V4};
use crate::connection::{Connection, family};
use crate::mss::{announced_mss, floored_mtu};
use crate::sent_segments::SentSegments;
use crate::timestamps::OPTION_LEN;

impl Connection {
    /// Follows the path MTU of the routing tables: call it before a segment is built.
    #[inline]
    pub(crate) fn follow_path(&mut self, records: &mut SentSegments, mtu: u32, now: Instant) {
        let is_first = self.path.mtu == 0;
        if self.path.follow(mtu, now) {
            self.resize(records, is_first, now);
        }
    }

    /// Adopts the size of the path.
    #[cold]
    fn resize(&mut self, records: &mut SentSegments, is_first: bool, now: Instant) {
        let mss = self.path.mss(family(&self.flow));
        if mss == self.agreed.path_mss {
            return;
        }
        self.agreed.path_mss = mss;
        if is_first && self.snd.nxt == self.snd.iss + 1 {
            // Nothing was sent: the initial window is that of the right size.
            let is_slow = self.recovery.window().window() <= self.recovery.mss();
            self.restart_recovery(now);
            if is_slow {
                self.recovery.begin_slowly();
            }
        } else {
            let mss = self.mss();
            self.recovery.set_mss(records, mss);
        }
    }

    /// A router reports that a packet of ours exceeded `mtu` bytes. All that is in flight in larger
    /// segments is lost, and is sent again at once, not as congestion (RFC 1191 section 6.4, RFC
    /// 8201 section 5.4).
    pub(crate) fn on_too_big(&mut self, records: &mut SentSegments, mtu: u32, now: Instant) {
        let family = family(&self.flow);
        let carries = announced_mss(family, floored_mtu(family, mtu)).0;
        if carries < self.agreed.path_mss || mtu < floored_mtu(family, 0) {
            self.path.report(family, mtu, now);
            self.resize(records, false, now);
        }
        if self.state().is_synchronized() {
            let options = if self.agreed.timestamps { OPTION_LEN } else { 0 };
            let size = u32::from(carries).saturating_sub(options);
            self.recovery.on_too_big(records, size);
        }
    }

    /// Black-hole detection: full segments that are lost repeatedly may exceed the MTU of a router
    /// which sends no errors, or sends errors that are lost; smaller ones are tried (RFC 4821
    /// section 7.7, RFC 5927 section 7.2). Once the path is alive, larger ones are tried again.
    pub(crate) fn suspect_black_hole(&mut self, records: &mut SentSegments, now: Instant) {
        let tries = self.recovery.rtt().backoff();
        let is_full = self.recovery.board().outstanding() >= self.mss();
        let smaller = match family(&self.flow) {
            Family::V4 if tries >= FRAGMENT_TRIES => LEAST_MSS_V4,
            Family::V4 => BLACK_HOLE_MSS.0,
            Family::V6 => BLACK_HOLE_MSS.1,
        };
        let size = self.agreed.path_mss.min(self.agreed.peer_mss);
        if tries >= BLACK_HOLE_TRIES && is_full && size > smaller {
            self.path.suspect(size, smaller);
            self.resize(records, false, now);
        }
    }

    /// New data was acknowledged.
    #[inline]
    pub(crate) fn note_alive(&mut self, now: Instant) {
        if self.path.is_searching() {
            cold_path();
            self.path.prove_alive(now);
        }
    }

    /// The payload of a probe for a larger segment size, where one is due and may be sent: followed
    /// by enough data that its loss is noticed (RFC 4821 section 7.4).
    pub(crate) fn size_probe(&mut self, records: &SentSegments, now: Instant) -> Option<u32> {
        if !self.path.is_searching() || !self.recovery.may_probe_size(records) {
            return None;
        }
        let size = self.path.next_probe(family(&self.flow), self.agreed.peer_mss, now)?;
        let options = self.agreed.path_mss.min(self.agreed.peer_mss);
        let options = u32::from(options).saturating_sub(self.segment_room());
        let len = u32::from(size).saturating_sub(options);
        let fits = self.snd.usable().min(self.recovery.allowance());
        let behind = len + 3 * self.mss();
        (len > self.segment_room() && len <= fits && behind <= self.snd.unsent()).then(|| {
            self.path.probe = size;
            len
        })
    }

    /// A probe of `len` bytes that begins at `seq` was built.
    pub(crate) fn size_probe_sent(
        &mut self,
        records: &mut SentSegments,
        seq: Seq,
        (len, asked): (u32, u32),
    ) {
        if len == asked {
            self.recovery.on_size_probe(records, seq, len);
            self.path.is_probe = true;
        } else {
            // The data lies in too many pieces for one packet.
            self.path.probe = 0;
        }
    }

    /// Takes the outcome of a probe from the sender.
    #[inline]
    pub(crate) fn judge_size_probe(&mut self, records: &mut SentSegments, now: Instant) {
        if let Some(arrived) = self.recovery.take_size_verdict(records)
            && self.path.judge(arrived, now)
        {
            self.resize(records, false, now);
        }
    }

    /// Whether the segment built last may be fragmented by routers.
    pub(crate) const fn take_fragmentable(&mut self) -> bool {
        let clears = self.path.clears_df();
        self.path.is_probe = false;
        clears
    }
}
