//! The worker loop that runs engines on devices.
//!
//! A [`Worker`] owns an engine, its packet memory and its [`Port`]s. One turn: receive a burst,
//! pass it to the engine, transmit, do a slice of timed work; then continue, or sleep until a
//! device, the engine's deadline or the bell wakes it. Other threads reach it in three ways only: a
//! [`Stop`], a bounded [`Control`] mailbox, and the snapshot that it publishes
//! ([`PublishedReader`]). A [`WorkerGroup`] is several workers of one host, each on a core of its
//! own; they hand packets to the owners of their flows, and share what one of them publishes.
//!
//! Invariants: this is the only place where real time is read ([`Clock`]) and where real
//! randomness enters ([`entropy`]); a worker takes no lock that another thread may hold and
//! allocates nothing in its loop; at rest it makes no system call. Start reading at `turn.rs`.
#![forbid(unsafe_code)]

mod bell;
mod clock;
mod control;
mod core_demand;
mod core_share;
mod core_watch;
pub mod entropy;
mod exchange;
mod flood_watch;
mod membership;
mod offers;
mod panics;
pub mod pin;
mod port;
mod publish;
mod redirects;
mod shared_pressure;
mod sleep;
mod standing;
mod stop;
mod turn;
mod turn_gate;
mod turn_limit;
mod turn_watch;
mod worker;
mod worker_counters;
mod worker_group;

pub use bell::Bell;
pub use clock::Clock;
pub use control::{Control, ControlError, ControlQueue, WorkerCommand};
pub use flood_watch::{
    FLOOD_RATE_MIN, FloodBegan, FloodCounts, FloodEnded, FloodEvent, FloodKind, FloodUnderWay,
    FloodWatch,
};
pub use floodwall_schedule::{BalanceConfig, GateConfig, Share};
pub use membership::Setting;
pub use panics::{OnPanic, PanicReport};
pub use pin::{PinError, pin_to_core};
pub use port::{Port, PortReport};
pub use publish::{Publish, Published, PublishedReader, Shown, WORDS_MAX};
pub use stop::Stop;
pub use turn_gate::{ApplicationShare, AtWork};
pub use turn_watch::TURN_BUCKETS;
pub use worker::{Ended, Event, Worker, WorkerConfig, WorkerError};
pub use worker_counters::{WorkerCounter, WorkerCounters};
pub use worker_group::{
    WORKERS_MAX, WorkerGroup, WorkerGroupConfig, WorkerGroupEnded, WorkerGroupError,
    WorkerGroupReader, WorkerSeat, WorkerSlot,
};
