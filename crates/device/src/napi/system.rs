//! `System`: the kernel interface that a placement uses, replaced by a fake in tests.
//!
//! Implemented by `linux.rs`, and by the fake of `tests.rs`.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use super::link::InterfaceLink;
use super::poller::PollDrive;
use super::thread::ThreadStanding;
use super::threaded::{Napi, NapiSetting};

/// Queries and settings of one interface; every error is the system's own.
pub(super) trait System: Send + Debug {
    fn link(&self) -> io::Result<InterfaceLink>;
    /// The interface's receive halves.
    fn napis(&self) -> io::Result<Vec<Napi>>;
    fn set_napi(&self, id: u32, wish: &NapiSetting) -> io::Result<()>;
    /// Whether packets are joined on arrival.
    fn joins(&self) -> io::Result<bool>;
    fn set_joins(&self, on: bool) -> io::Result<()>;
    fn standing(&self, thread: u32) -> io::Result<ThreadStanding>;
    fn pin(&self, thread: u32, cores: &[usize]) -> io::Result<()>;
    fn set_nice(&self, thread: u32, nice: i32) -> io::Result<()>;
    /// Sets how long it runs at a stretch while others wait; zero is the system's own choice.
    fn set_slice(&self, thread: u32, slice: Duration) -> io::Result<()>;
    /// The control group of a thread; our own where that is `None`.
    fn group(&self, thread: Option<u32>) -> io::Result<String>;
    /// What runs the receive halves with these numbers from our own calls.
    fn driver(&self, ids: &[u32]) -> io::Result<Box<dyn PollDrive>>;
    /// Sets both in one call.
    fn set_turns(&self, thread: u32, nice: i32, slice: Duration) -> io::Result<()>;
    /// Another handle of the same interface.
    fn again(&self) -> io::Result<Box<dyn System>>;
    /// Where the processor time of a thread is read.
    fn thread_time(&self, thread: u32) -> io::Result<std::fs::File>;
    fn move_to(&self, thread: u32, group: &str) -> io::Result<()>;
}
