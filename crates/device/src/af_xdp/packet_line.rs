//! `PacketLine`: the program of an XDP interface in front of a packet socket.
//!
//! Made by `spec.rs` for `packet:` devices. The program is that of `af_xdp.rs`, but what it does
//! not drop goes on to the system, whose packet socket has a copy for us. So a flood is refused,
//! and SYNs are answered, before a frame is copied; what is not for our link address goes up as
//! ever. Invariant: without the program the device is what it was, and the reason is in the notes.
//!
//! # Under flood
//! See `filter.rs` and `cookies.rs`. One worker reads all queues, so each queue has its part of the
//! credit.

use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{RxFilter, SynOffers};

use super::attach::attach;
use super::card::Card;
use super::cookies::CookieProgramPlan;
use super::failure::failed;
use super::filter::FilterTurn;
use super::filter_tables::FilterUpdate;
use super::link_station::LinkStation;
use super::steering::QueueSteering;
use super::xdp_abi::Deliver;
use crate::error::DeviceError;
use crate::first_line_mode::FirstLineMode;
use crate::interface::InterfaceControl;
use crate::stats::DeviceStats;
use crate::xdp_mode::XdpMode;

/// The first line of a `packet:` interface: an XDP program without sockets of its own.
#[derive(Debug)]
pub(crate) struct PacketLine {
    steering: QueueSteering,
    /// One for each receive queue.
    turns: Vec<FilterTurn>,
    told: Option<FilterUpdate>,
    overflowed: bool,
    /// Frames that the device took since its ring was empty, and unverified ones admitted by then.
    taken: u64,
    admitted: u64,
}

impl PacketLine {
    /// Attaches the program to the interface `name` for our station; `None`, with the reason in
    /// `notes`, where that cannot be.
    ///
    /// # Errors
    /// It cannot be, and `mode` asks for all of it.
    pub(crate) fn attach(
        name: &str,
        station: MacAddr,
        mode: FirstLineMode,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>, DeviceError> {
        if mode == FirstLineMode::Off {
            return Ok(None);
        }
        match Self::try_attach(name, station, mode, notes) {
            Ok(line) => Ok(Some(line)),
            Err(error) if mode == FirstLineMode::Cookies => Err(error),
            Err(error) => {
                notes.push(format!(
                    "nothing is answered or dropped at the interface, so a flood is met by the \
                     worker: {error}"
                ));
                Ok(None)
            }
        }
    }

    fn try_attach(
        name: &str,
        station: MacAddr,
        mode: FirstLineMode,
        notes: &mut Vec<String>,
    ) -> Result<Self, DeviceError> {
        let io = |action| move |error| failed(name, action, error);
        let control = InterfaceControl::open().map_err(io("open a socket"))?;
        let interface = control.interface(name);
        let index = interface.index().map_err(io("look for the interface"))?.cast_unsigned();
        let mac = interface.mac().map_err(io("read the link address"))?;
        let station = LinkStation { mac: station, is_shared: mac == Some(station) };
        let card = Card::of(name).map_err(io("query the driver"))?;
        let plan = CookieProgramPlan {
            deliver: Deliver::Onward,
            filters: true,
            ..CookieProgramPlan::of(mode, &station, card.is_local(), index)
        };
        let mut told = Vec::new();
        let mut steering = QueueSteering::load(station, card.queues, &plan, &mut told)
            .map_err(io("load the program for the interface"))?;
        plan.judge(name, &steering)?;
        let first = told.len();
        attach(name, &mut steering, index, XdpMode::Auto, &mut told)?;
        let is_generic = told.iter().skip(first).any(|note| note.starts_with("generic"));
        steering.reach_peer(&plan, is_generic, &mut told);
        notes.append(&mut told);
        let turns = vec![FilterTurn::default(); card.queues as usize];
        let told = steering.guard().map(|guard| {
            (1..card.queues).for_each(|queue| drop(guard.wants().join(queue, station.is_shared)));
            guard.wants().join(0, station.is_shared)
        });
        Ok(Self { steering, turns, told, overflowed: false, taken: 0, admitted: 0 })
    }

    /// Unverified frames admitted since the start.
    fn admitted(&self) -> u64 {
        let queues = (0..).take(self.turns.len());
        self.steering.guard().map_or(0, |guard| queues.map(|queue| guard.admitted(queue)).sum())
    }

    /// The device has taken so many frames, and its ring is empty now, or is not.
    pub(crate) fn took(&mut self, frames: u64, is_empty: bool) {
        self.taken += frames;
        if is_empty {
            (self.taken, self.admitted) = (0, self.admitted());
        }
    }

    /// As [`Device::admit`](crate::Device::admit), where no more than `places` unverified frames
    /// may wait in the ring.
    pub(crate) fn admit(&mut self, now: Instant, credit: Option<usize>, places: usize) {
        self.steering.look_after(now);
        let waiting = self.admitted().wrapping_sub(self.admitted).saturating_sub(self.taken);
        let Some(guard) = self.steering.guard() else { return };
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
            turn.begin(guard, now, queue, (part, places.div_ceil(queues)));
            self.overflowed |= turn.has_refused(guard, queue);
            if let Some(cookies) = self.steering.cookies() {
                cookies.press(queue, credit.is_some());
            }
        }
    }

    /// As [`Device::want`](crate::Device::want).
    pub(crate) fn want(&mut self, wanted: &RxFilter) {
        if let (Some(guard), Some(told)) = (self.steering.guard(), &mut self.told) {
            guard.wants().tell(0, told, wanted, self.steering.is_shared());
            for (queue, turn) in (0..).zip(&mut self.turns) {
                turn.want(guard, queue, wanted);
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
        if let (Some(guard), Some(turn)) = (self.steering.guard(), self.turns.first_mut()) {
            turn.mark_established(guard, now, frame);
        }
    }

    /// As [`Device::rest`](crate::Device::rest), where so many unverified frames may wait.
    pub(crate) fn rest(&mut self, room: usize) {
        let Some(guard) = self.steering.guard() else { return };
        let part = room.div_ceil(self.turns.len().max(1));
        for (queue, turn) in (0..).zip(&mut self.turns) {
            turn.rest(guard, queue, part);
        }
    }

    /// As [`Device::has_overflowed`](crate::Device::has_overflowed).
    pub(crate) const fn has_overflowed(&mut self) -> bool {
        core::mem::replace(&mut self.overflowed, false)
    }

    /// Adds what was dropped and answered.
    pub(crate) fn count(&self, stats: &mut DeviceStats) {
        stats.rx_program_lost += self.steering.lost();
        for queue in (0..).take(self.turns.len()) {
            if let Some(guard) = self.steering.guard() {
                guard.count(queue, stats);
            }
            if let Some(cookies) = self.steering.cookies() {
                cookies.count(queue, stats);
            }
        }
    }
}
