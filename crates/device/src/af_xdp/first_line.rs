//! `FirstLine`: the program of an XDP interface, run by a test facility on given frames.
//!
//! Made by tests, which compare its verdicts with those of the stack. Needs the privileges of
//! [`AfXdp`](super::AfXdp) but no interface.

use floodwall_base::{Instant, MacAddr};
use floodwall_packet::{RedirectOffer, RxFilter, SynOffers};

use super::cookies::{Back, CookieProgramPlan};
use super::filter::FilterTurn;
use super::filter_tables::FilterUpdate;
use super::link_station::LinkStation;
use super::steering::QueueSteering;
use super::xdp_abi::TRANSMIT;
use crate::error::DeviceError;
use crate::service_sample::ServiceSample;
use crate::stats::DeviceStats;

/// The queue on which test frames arrive.
const TEST_QUEUE: u32 = 0;

/// Frames of established flows that each turn has room for.
pub(super) const TURN_ROOM: usize = 512;

/// What the program does with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstLineState {
    /// It stays the host's.
    Passed,
    /// It goes to our socket.
    Taken,
    /// Dropped; the text is the name of its counter in [`DeviceStats`].
    Refused(&'static str),
    /// It was a SYN, and is sent back as its answer.
    Answered,
    /// It leaves by another interface of a router, changed as the router would.
    Redirected,
}

/// An XDP program that is loaded but not attached: it gives verdicts for test frames.
#[derive(Debug)]
pub struct FirstLine {
    steering: QueueSteering,
    turn: FilterTurn,
    told: Option<FilterUpdate>,
}

impl FirstLine {
    /// The program for a station. Costs a look by the kernel's verifier.
    ///
    /// # Errors
    /// No privilege, or the kernel does not support such programs; the verifier's message.
    pub fn load(station: MacAddr) -> Result<Self, DeviceError> {
        Self::of(LinkStation { mac: station, is_shared: false }, &CookieProgramPlan::default())
    }

    /// The same in which frames of established flows cost nothing, as with
    /// [`AfXdpConfig::flow_credit`] off.
    ///
    /// # Errors
    /// As of [`FirstLine::load`].
    ///
    /// [`AfXdpConfig::flow_credit`]: crate::AfXdpConfig::flow_credit
    pub fn load_without_flow_credit(station: MacAddr) -> Result<Self, DeviceError> {
        let plan = CookieProgramPlan { flow_credit: false, ..CookieProgramPlan::default() };
        Self::of(LinkStation { mac: station, is_shared: false }, &plan)
    }

    /// The same with the programs that answer SYNs and check ACKs, in force at once.
    ///
    /// # Errors
    /// As of [`FirstLine::load`].
    pub fn load_answering(station: MacAddr) -> Result<Self, DeviceError> {
        let plan = CookieProgramPlan {
            filters: true,
            answers: Some(Back::Transmitted),
            ..CookieProgramPlan::default()
        };
        Self::of(LinkStation { mac: station, is_shared: false }, &plan)
    }

    /// The program for a station at the link address of the host's own interface.
    ///
    /// # Errors
    /// As of [`FirstLine::load`].
    pub fn load_shared(station: MacAddr) -> Result<Self, DeviceError> {
        Self::of(LinkStation { mac: station, is_shared: true }, &CookieProgramPlan::default())
    }

    fn of(station: LinkStation, plan: &CookieProgramPlan) -> Result<Self, DeviceError> {
        let mut notes = Vec::new();
        let failed =
            |error| super::failure::failed("xdp", "load the program that steers frames", error);
        let steering = QueueSteering::load(station, 1, plan, &mut notes).map_err(failed)?;
        if let Some(cookies) = steering.cookies() {
            cookies.start().map_err(failed)?;
        }
        match notes.pop() {
            None => {
                let told = steering
                    .filter()
                    .map(|filter| filter.wants().join(TEST_QUEUE, station.is_shared));
                Ok(Self { steering, turn: FilterTurn::default(), told })
            }
            Some(note) => Err(failed(std::io::Error::other(note))),
        }
    }

    /// As [`Device::admit`](crate::Device::admit).
    pub fn admit(&mut self, now: Instant, credit: Option<usize>) {
        if let Some(filter) = self.steering.filter() {
            self.turn.begin(filter, now, TEST_QUEUE, (credit, TURN_ROOM));
        }
        if let Some(cookies) = self.steering.cookies() {
            cookies.press(TEST_QUEUE, credit.is_some());
        }
    }

    /// As [`Device::answer_syns`](crate::Device::answer_syns).
    ///
    /// # Errors
    /// The kernel's, where a listener cannot be shown to the program.
    pub fn answer_syns(&mut self, offers: &SynOffers) -> Result<(), DeviceError> {
        let failed = |error| super::failure::failed("xdp", "tell the program of listeners", error);
        self.steering.cookies().map_or(Ok(()), |cookies| cookies.offer(offers)).map_err(failed)
    }

    /// Records the flow of `frame` as established:
    /// [`Device::mark_established`](crate::Device::mark_established).
    pub fn mark_established(&mut self, now: Instant, frame: &[u8]) {
        if let Some(filter) = self.steering.filter() {
            self.turn.mark_established(filter, now, frame);
        }
    }

    /// As [`Device::want`](crate::Device::want).
    pub fn want(&mut self, wanted: &RxFilter) {
        if let (Some(filter), Some(told)) = (self.steering.filter(), &mut self.told) {
            filter.wants().tell(TEST_QUEUE, told, wanted, self.steering.is_shared());
            self.turn.want(filter, TEST_QUEUE, wanted);
        }
    }

    /// As [`Device::redirect`](crate::Device::redirect), in the turn that was admitted last.
    pub fn redirect(&mut self, now: Instant, offer: &RedirectOffer, target: u32) {
        if let Some(filter) = self.steering.filter() {
            self.turn.redirect(filter, now, offer, target);
        }
    }

    /// As [`Device::forget_redirects`](crate::Device::forget_redirects).
    pub fn forget_redirects(&mut self, now: Instant) {
        if let Some(filter) = self.steering.filter() {
            filter.redirects().forget(now);
        }
    }

    /// As [`Device::sampled_services`](crate::Device::sampled_services).
    #[must_use]
    pub fn sampled_services(&self) -> Vec<ServiceSample> {
        let mut all = Vec::new();
        if let Some(filter) = self.steering.filter() {
            filter.sampled_services(TEST_QUEUE, &mut all);
        }
        all
    }

    /// Shows it a frame.
    ///
    /// # Errors
    /// The kernel runs no program on less than a link header, nor on more than a page.
    pub fn say(&self, frame: &[u8]) -> Result<FirstLineState, DeviceError> {
        self.run(&mut frame.to_vec(), 1).map(|(said, _)| said)
    }

    /// Shows it a frame so many times, each as the last time has left it, and leaves what the last
    /// one made of it. Also returns how many nanoseconds one time took.
    ///
    /// # Errors
    /// As of [`FirstLine::say`].
    pub fn run(
        &self,
        frame: &mut Vec<u8>,
        times: u32,
    ) -> Result<(FirstLineState, u32), DeviceError> {
        let failed = |error| super::failure::failed("xdp", "run the program on a frame", error);
        let (passed, before) = (self.steering.passed().map_err(failed)?, self.stats());
        let (verdict, nanos) = self.steering.run(frame, times).map_err(failed)?;
        if verdict == TRANSMIT {
            return Ok((FirstLineState::Answered, nanos));
        }
        if self.stats().rx_redirected > before.rx_redirected {
            return Ok((FirstLineState::Redirected, nanos));
        }
        if self.steering.passed().map_err(failed)? > passed {
            return Ok((FirstLineState::Passed, nanos));
        }
        let counts = before.named().into_iter().zip(self.stats().named());
        let is_loss = |name: &str| {
            !name.starts_with("rx_cookies")
                && !name.starts_with("rx_redirected")
                && name != "rx_syns_answered"
        };
        let mut moved = counts
            .filter(|((_, before), (_, after))| before != after)
            .map(|(_, now)| now.0)
            .filter(|name| is_loss(name));
        let said = moved.next_back().map_or(FirstLineState::Taken, FirstLineState::Refused);
        Ok((said, nanos))
    }

    /// The program's descriptor.
    #[cfg(test)]
    pub(super) fn program(&self) -> i32 {
        self.steering.program()
    }

    /// Frames dropped so far, by reason.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let mut stats = DeviceStats::default();
        if let Some(filter) = self.steering.filter() {
            filter.count(TEST_QUEUE, &mut stats);
            (stats.rx_redirected, stats.rx_redirected_bytes) = filter.redirects().redirected();
        }
        if let Some(cookies) = self.steering.cookies() {
            cookies.count(TEST_QUEUE, &mut stats);
        }
        stats
    }
}
