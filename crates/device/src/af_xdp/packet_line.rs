//! `PacketLine`: the program of an XDP interface in front of a packet socket.
//!
//! Made by `spec.rs` for `packet:` devices. The program is that of `af_xdp.rs`, but what it does
//! not drop goes on to the kernel; its packet socket has a copy for us. So a flood is refused,
//! and SYNs are answered, before a frame is copied; what is not for our link address goes up as
//! ever. Where the peer would pay for the program, and it was not asked for by name, it is attached
//! while a flood is on (`demand.rs`, `line_switch.rs`). Invariant: without the program the device
//! is what it was, and the reason is in the notes.
//!
//! # Under flood
//! See `filter.rs` and `cookies.rs`. One worker reads all queues, so each queue has its part of the
//! credit.

use std::sync::Arc;

use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{RxFilter, SynOffers};

use super::attach::attach;
use super::card::Card;
use super::cookies::CookieProgramPlan;
use super::demand::Demand;
use super::failure::failed;
use super::filter::FilterTurn;
use super::filter_tables::FilterUpdate;
use super::line_report::{self, LineMoment};
use super::line_switch::LineSwitch;
use super::link_station::LinkStation;
use super::steering::QueueSteering;
use super::xdp_abi::Deliver;
use crate::error::DeviceError;
use crate::first_line_mode::FirstLineMode;
use crate::first_line_report::FirstLineReport;
use crate::interface::InterfaceControl;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;
use crate::xdp_mode::XdpMode;

/// What `run` says where the program comes and goes.
const ON_DEMAND: &str = "the program at the interface is attached while there are more than 20,000 \
                         SYNs a second, or most of what arrives under pressure is unverified, and \
                         for ten seconds after: while it is there, the other end of this interface \
                         cuts its segments in software, so that its bulk is slower (`--first-line \
                         cookies` keeps it there)";

/// Why no packet is passed on there by the program alone.
const COPIES: &str = "a `packet:` interface has copies of what the kernel passes on; use `xdp:`";

/// The first line of a `packet:` interface: an XDP program without sockets of its own.
#[derive(Debug)]
pub(crate) struct PacketLine {
    steering: Arc<QueueSteering>,
    /// Where the program is at the interface only during a flood: what attaches it.
    on_demand: Option<(Demand, LineSwitch)>,
    /// One for each receive queue.
    turns: Vec<FilterTurn>,
    told: Option<FilterUpdate>,
    overflowed: bool,
    /// Frames that the device took since its ring was empty, and unverified ones admitted by then.
    taken: u64,
    admitted: u64,
}

impl PacketLine {
    /// Attaches the program to the interface `name` for our station; the reason, which is in
    /// `notes` too, where that cannot be.
    ///
    /// # Errors
    /// It cannot be, and `mode` asks for all of it.
    pub(crate) fn attach(
        name: &str,
        station: MacAddr,
        (mode, way): (FirstLineMode, XdpMode),
        notes: &mut Vec<String>,
    ) -> Result<Result<Self, String>, DeviceError> {
        if mode == FirstLineMode::Off {
            return Ok(Err("it is off, as configured".to_owned()));
        }
        match Self::try_attach(name, station, (mode, way), notes) {
            Ok(line) => Ok(Ok(line)),
            Err(error) if mode == FirstLineMode::Cookies => Err(error),
            Err(error) => {
                notes.push(format!(
                    "nothing is answered or dropped at the interface, so a flood is met by the \
                     worker: {error}"
                ));
                Ok(Err(error.to_string()))
            }
        }
    }

    fn try_attach(
        name: &str,
        station: MacAddr,
        (mode, way): (FirstLineMode, XdpMode),
        notes: &mut Vec<String>,
    ) -> Result<Self, DeviceError> {
        let io = |action| move |error| failed(name, action, error);
        let control = InterfaceControl::open().map_err(io("open a socket"))?;
        let interface = control.interface(name);
        let index = interface.index().map_err(io("look for the interface"))?.cast_unsigned();
        let mac = interface.mac().map_err(io("read the link address"))?;
        let station = LinkStation { mac: station, is_shared: mac == Some(station) };
        let card = Card::of(name).map_err(io("query the driver"))?;
        let on_demand = mode == FirstLineMode::Auto && card.cuts_for_programs();
        let plan = CookieProgramPlan {
            deliver: Deliver::Onward,
            filters: true,
            ..CookieProgramPlan::of(mode, &station, card.is_local(), index)
        };
        let mut told = Vec::new();
        let mut steering = QueueSteering::load(station, card.queues, &plan, &mut told)
            .map_err(io("load the program for the interface"))?;
        plan.validate(name, &steering)?;
        let first = told.len();
        // On demand it is tried once, so that what is in the way is said now.
        attach(name, &steering, index, way, &mut told)?;
        let is_generic = told.iter().skip(first).any(|note| note.starts_with("generic"));
        if on_demand && !is_generic {
            steering.detach();
            told.truncate(first);
            told.push(ON_DEMAND.to_owned());
        }
        steering.reach_peer(&plan, is_generic, &mut told);
        notes.append(&mut told);
        let steering = Arc::new(steering);
        let on_demand = match on_demand && !is_generic {
            true => {
                let switch = LineSwitch::start(&steering, index);
                Some((Demand::default(), switch.map_err(io("start a thread"))?))
            }
            false => None,
        };
        let turns = vec![FilterTurn::default(); card.queues as usize];
        let told = steering.filter().map(|filter| {
            (1..card.queues).for_each(|queue| drop(filter.wants().join(queue, station.is_shared)));
            filter.wants().join(0, station.is_shared)
        });
        let (taken, admitted) = (0, 0);
        Ok(Self { steering, on_demand, turns, told, overflowed: false, taken, admitted })
    }

    /// Unverified frames admitted since the start.
    fn admitted(&self) -> u64 {
        let queues = (0..).take(self.turns.len());
        self.steering.filter().map_or(0, |filter| queues.map(|queue| filter.admitted(queue)).sum())
    }

    /// A turn begins: whether the program is at the interface, which is there on demand.
    fn is_demanded(&mut self, now: Instant, presses: bool) -> bool {
        let is_attached = self.is_attached();
        let judged = if is_attached { self.judged() } else { 0 };
        if let Some((demand, switch)) = &mut self.on_demand {
            switch.set(demand.turn(now, presses, judged));
        }
        is_attached
    }

    /// Frames dropped or answered at the interface since the start.
    pub(crate) fn judged(&self) -> u64 {
        let queues = (0..).take(self.turns.len());
        let dropped = |queue| self.steering.filter().map_or(0, |filter| filter.dropped(queue));
        let answered = |queue| self.steering.cookies().map_or(0, |all| all.judged(queue));
        queues.map(|queue| dropped(queue) + answered(queue)).sum()
    }

    /// Whether the program is at the interface only during a flood.
    pub(crate) const fn is_on_demand(&self) -> bool {
        self.on_demand.is_some()
    }

    /// Whether the program is at the interface now.
    pub(crate) fn is_attached(&self) -> bool {
        self.on_demand.as_ref().is_none_or(|(_, switch)| switch.is_attached())
    }

    /// The device has taken this frame.
    #[inline]
    pub(crate) fn sees(&mut self, frame: &[u8]) {
        if let Some((demand, _)) = &mut self.on_demand {
            demand.sees(frame);
        }
    }

    /// The device has taken so many frames, and its ring is empty now, or is not.
    pub(crate) fn took(&mut self, frames: u64, is_empty: bool) {
        self.taken += frames;
        if let Some((demand, _)) = &mut self.on_demand {
            demand.arrived(frames);
        }
        if is_empty {
            (self.taken, self.admitted) = (0, self.admitted());
        }
    }

    /// As [`Device::admit`](crate::Device::admit), where no more than `places` unverified frames
    /// may wait in the ring.
    pub(crate) fn admit(&mut self, now: Instant, credit: Option<usize>, places: usize) {
        self.steering.look_after(now);
        if self.on_demand.is_some() && !self.is_demanded(now, credit.is_some()) {
            return self.begin_without_program(now);
        }
        let waiting = self.admitted().wrapping_sub(self.admitted).saturating_sub(self.taken);
        let Some(filter) = self.steering.filter() else { return };
        let queues = self.turns.len().max(1);
        let credit = credit.map(|credit| match credit {
            usize::MAX => credit,
            _ => credit.min(places.saturating_sub(waiting as usize)),
        });
        let part = credit.map(|credit| match credit {
            usize::MAX => credit,
            _ => credit.div_ceil(queues),
        });
        for (queue, turn) in (0..).zip(&mut self.turns) {
            turn.begin(filter, now, queue, (part, places.div_ceil(queues)));
            self.overflowed |= turn.has_refused(filter, queue);
            if let Some(cookies) = self.steering.cookies() {
                cookies.press(queue, credit.is_some());
            }
        }
    }

    /// A turn begins in which the program is not at the interface: established flows are noted all
    /// the same, so that it knows them from the first moment of a flood on.
    fn begin_without_program(&mut self, now: Instant) {
        let Some(filter) = self.steering.filter() else { return };
        for (queue, turn) in (0..).zip(&mut self.turns) {
            turn.begin(filter, now, queue, (None, 0));
        }
    }

    /// As [`Device::want`](crate::Device::want).
    pub(crate) fn want(&mut self, wanted: &RxFilter) {
        if let (Some(filter), Some(told)) = (self.steering.filter(), &mut self.told) {
            filter.wants().tell(0, told, wanted, self.steering.is_shared());
            for (queue, turn) in (0..).zip(&mut self.turns) {
                turn.want(filter, queue, wanted);
            }
        }
    }

    /// As [`Device::answer_syns`](crate::Device::answer_syns).
    pub(crate) fn answer_syns(&self, offers: &SynOffers) {
        if let Some(cookies) = self.steering.cookies() {
            cookies.renew(offers);
        }
    }

    /// As [`Device::has_answered_syns`](crate::Device::has_answered_syns).
    pub(crate) fn has_answered_syns(&self, now: Instant) -> bool {
        self.steering.cookies().is_some_and(|cookies| cookies.has_answered(now))
    }

    /// As [`Device::mark_established`](crate::Device::mark_established).
    pub(crate) fn mark_established(&mut self, now: Instant, frame: &[u8]) {
        if let Some((demand, _)) = &mut self.on_demand {
            demand.is_established();
        }
        if let (Some(filter), Some(turn)) = (self.steering.filter(), self.turns.first_mut()) {
            turn.mark_established(filter, now, frame);
        }
    }

    /// As [`Device::rest`](crate::Device::rest), where so many unverified frames may wait.
    pub(crate) fn rest(&mut self, room: usize) {
        if !self.is_attached() {
            return;
        }
        let Some(filter) = self.steering.filter() else { return };
        let part = room.div_ceil(self.turns.len().max(1));
        for (queue, turn) in (0..).zip(&mut self.turns) {
            turn.rest(filter, queue, part);
        }
    }

    /// As [`Device::first_line_report`](crate::Device::first_line_report).
    pub(crate) fn report(&self) -> FirstLineReport {
        let Some(turn) = self.turns.first() else { return FirstLineReport::default() };
        let (is_attached, no_redirect) = (self.is_attached(), Some(COPIES));
        line_report::report(&self.steering, &LineMoment { turn, is_attached, no_redirect })
    }

    /// As [`Device::has_overflowed`](crate::Device::has_overflowed).
    pub(crate) fn has_overflowed(&mut self) -> bool {
        let looks = self.on_demand.as_mut().is_some_and(|(demand, _)| demand.looks());
        core::mem::replace(&mut self.overflowed, false) || looks
    }

    /// As [`Device::sampled_services`](crate::Device::sampled_services).
    pub(crate) fn sampled_services(&self) -> Vec<ServiceSample> {
        let mut all = Vec::new();
        if let Some(filter) = self.steering.filter() {
            (0..).take(self.turns.len()).for_each(|queue| filter.sampled_services(queue, &mut all));
        }
        all
    }

    /// Adds what was dropped and answered.
    pub(crate) fn count(&self, stats: &mut DeviceStats) {
        stats.rx_program_lost += self.steering.lost();
        stats.rx_program_attached += self.on_demand.as_ref().map_or(0, |(_, it)| it.times());
        for queue in (0..).take(self.turns.len()) {
            if let Some(filter) = self.steering.filter() {
                filter.count(queue, stats);
            }
            if let Some(cookies) = self.steering.cookies() {
                cookies.count(queue, stats);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use floodwall_packet::RxFilter;

    use super::*;

    const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const DROPPED: i32 = 1;
    const PASSED: i32 = 2;

    /// A TCP segment with data and ACK between these ends, of a port.
    fn segment(v6: bool, port: u16, seq: u32) -> Vec<u8> {
        let mut tcp = [port.to_be_bytes(), 7_u16.to_be_bytes()].concat();
        tcp.extend(seq.to_be_bytes());
        tcp.extend([0, 0, 0, 1, 0x50, 0x18, 4, 0, 0, 0, 0, 0]);
        tcp.extend([0; 100]);
        let mut frame = [STATION.0, [2, 0, 0, 0, 0, 8]].concat();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64]);
            frame.extend([[0xfd; 16], [0xfe; 16]].concat());
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 20 + tcp.len() as u8, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.extend(tcp);
        frame
    }

    /// A line on demand, at one end of a veth in a namespace of the calling thread's own.
    fn on_demand() -> Option<PacketLine> {
        // SAFETY: the new thread alone enters another network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("SKIPPED: no namespace: {}", std::io::Error::last_os_error());
            return None;
        }
        let ip = |words: &str| Command::new("ip").args(words.split(' ')).output();
        if !ip("link add pl0 type veth peer name pl1").is_ok_and(|said| said.status.success()) {
            eprintln!("SKIPPED: no veth");
            return None;
        }
        let mode = (FirstLineMode::Auto, XdpMode::default());
        let mut notes = Vec::new();
        match PacketLine::attach("pl0", STATION, mode, &mut notes) {
            Ok(Ok(line)) => Some(line),
            other => {
                eprintln!("SKIPPED: no program: {other:?}");
                None
            }
        }
    }

    /// What the program does with a frame.
    fn say(line: &PacketLine, frame: &[u8]) -> i32 {
        line.steering.run(&mut frame.to_vec(), 1).unwrap().0
    }

    /// A flood of SYNs from `now` on, which brings the program; when it is there.
    #[expect(clippy::disallowed_methods, reason = "the program comes in real time")]
    fn flooded(line: &mut PacketLine, mut now: Instant) -> Instant {
        let mut syn = segment(false, 999, 1);
        syn[47] = 2;
        for _ in 0..100 {
            now += Duration::from_millis(1);
            line.admit(now, Some(0), 512);
            (0..64).for_each(|_| line.sees(&syn));
        }
        let late = std::time::Instant::now() + Duration::from_secs(60);
        while !line.is_attached() {
            assert!(std::time::Instant::now() < late, "it never comes");
            std::thread::sleep(Duration::from_millis(1));
        }
        now
    }

    fn known_from_the_first_moment() {
        let Some(mut line) = on_demand() else { return };
        assert!(line.is_on_demand() && !line.is_attached());
        let mut wanted = RxFilter::default();
        wanted.everything();
        line.want(&wanted);
        let mut now = Instant::from_nanos(1_000_000_000);
        let flows = [false, true].map(|v6| (0..40).map(move |port| segment(v6, 1000 + port, 7)));
        let flows: Vec<_> = flows.into_iter().flatten().collect();
        for turn in flows.chunks(16) {
            now += Duration::from_millis(1);
            line.admit(now, None, 512);
            turn.iter().for_each(|frame| line.mark_established(now, frame));
        }
        now = flooded(&mut line, now);
        line.admit(now, Some(0), 512);
        for frame in &flows {
            assert_eq!(say(&line, frame), PASSED, "{frame:02x?}");
        }
        let stranger = segment(false, 5000, 7);
        assert_eq!(say(&line, &stranger), DROPPED);
        // The first of them is replayed: it has its tokens, and no more.
        let replays = (0..80).filter(|_| say(&line, &flows[0]) == PASSED).count();
        assert_eq!(replays, 63);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace is left with its thread")]
    fn flows_that_were_established_before_the_program_comes_are_known_to_it_when_it_comes() {
        std::thread::spawn(known_from_the_first_moment).join().unwrap();
    }
}
