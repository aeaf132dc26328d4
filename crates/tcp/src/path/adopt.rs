//! The connection's side of path MTU discovery: it adopts the size of its path, and reports what
//! its segments show of it.
//!
//! Called where a segment is built, an acknowledgment arrives, a timer expires, or a router
//! reports.

use core::hint::cold_path;

use floodwall_base::{Family, Instant, Seq};

use super::{BLACK_HOLE_MSS, BLACK_HOLE_TRIES, FRAGMENT_TRIES, LEAST_MSS_V4};
use crate::connection::{Connection, family};
use crate::connection_flags::ConnectionFlags;
use crate::mss::{announced_mss, floored_mtu};
use crate::sent_segments::SentSegments;
use crate::timestamps::OPTION_LEN;

impl Connection {
    /// Follows the path MTU of the routing tables: call it before a segment is built.
    #[inline]
    pub(crate) fn follow_path(&mut self, records: &mut SentSegments, mtu: u32, now: Instant) {
        if mtu != self.path.mtu || self.flags.has(ConnectionFlags::PATH) {
            self.follow_change(records, mtu, now);
        }
    }

    /// The same where the path has changed, or more is known of it.
    #[cold]
    fn follow_change(&mut self, records: &mut SentSegments, mtu: u32, now: Instant) {
        let is_first = self.path.mtu == 0;
        if !self.flags.has(ConnectionFlags::PATH) {
            // Nothing was reported, and nothing is searched for: as `PathSize::follow`.
            self.path.mtu = mtu;
            return self.resize(records, is_first, now);
        }
        let mut path = self.path_size(&records.rare);
        if path.follow(mtu, now) {
            self.keep_path(&mut records.rare, &path);
            self.resize(records, is_first, now);
        }
    }

    /// Adopts the size of the path.
    #[cold]
    fn resize(&mut self, records: &mut SentSegments, is_first: bool, now: Instant) {
        let mss = self.path_size(&records.rare).mss(family(&self.flow));
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
            let mut path = self.path_size(&records.rare);
            path.report(family, mtu, now);
            self.keep_path(&mut records.rare, &path);
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
            let mut path = self.path_size(&records.rare);
            path.suspect(size, smaller);
            self.keep_path(&mut records.rare, &path);
            self.resize(records, false, now);
        }
    }

    /// New data was acknowledged.
    #[inline(always)]
    pub(crate) fn note_alive(&mut self, records: &mut SentSegments, now: Instant) {
        if self.flags.has(ConnectionFlags::PATH) {
            self.prove_alive(records, now);
        }
    }

    /// The same where more than the MTU of the path is known.
    #[cold]
    fn prove_alive(&mut self, records: &mut SentSegments, now: Instant) {
        let mut path = self.path_size(&records.rare);
        path.prove_alive(now);
        self.keep_path(&mut records.rare, &path);
    }

    /// The payload of a probe for a larger segment size, where one is due and may be sent: followed
    /// by enough data that its loss is noticed (RFC 4821 section 7.4).
    pub(crate) fn size_probe(&mut self, records: &mut SentSegments, now: Instant) -> Option<u32> {
        if !self.flags.has(ConnectionFlags::PATH) || !self.recovery.may_probe_size(records) {
            return None;
        }
        cold_path();
        let mut path = self.path_size(&records.rare);
        if !path.is_searching() {
            return None;
        }
        let size = path.next_probe(family(&self.flow), self.agreed.peer_mss, now);
        self.keep_path(&mut records.rare, &path);
        let size = size?;
        let options = self.agreed.path_mss.min(self.agreed.peer_mss);
        let options = u32::from(options).saturating_sub(self.segment_room());
        let len = u32::from(size).saturating_sub(options);
        let fits = self.snd.usable().min(self.recovery.allowance(records));
        let behind = len + 3 * self.mss();
        (len > self.segment_room() && len <= fits && behind <= self.snd.unsent()).then(|| {
            path.probe = size;
            self.keep_path(&mut records.rare, &path);
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
            self.flags.set(ConnectionFlags::SIZE_PROBE, true);
        } else {
            // The data lies in too many pieces for one packet.
            let mut path = self.path_size(&records.rare);
            path.probe = 0;
            self.keep_path(&mut records.rare, &path);
        }
    }

    /// Takes the outcome of a probe from the sender.
    #[inline(always)]
    pub(crate) fn judge_size_probe(&mut self, records: &mut SentSegments, now: Instant) {
        if let Some(arrived) = self.recovery.take_size_verdict(records) {
            self.take_size_verdict(records, arrived, now);
        }
    }

    /// The outcome of a probe is known.
    #[cold]
    fn take_size_verdict(&mut self, records: &mut SentSegments, arrived: bool, now: Instant) {
        let mut path = self.path_size(&records.rare);
        let grows = path.judge(arrived, now);
        self.keep_path(&mut records.rare, &path);
        if grows {
            self.resize(records, false, now);
        }
    }

    /// Whether the segment built last may be fragmented by routers.
    pub(crate) const fn take_fragmentable(&mut self) -> bool {
        !self.flags.take(ConnectionFlags::SIZE_PROBE) && self.flags.has(ConnectionFlags::CLEARS_DF)
    }
}
