//! `Linux`: the kernel's answers about one interface, by netlink, ioctl(2), sysfs and proc.
//!
//! Made by `napi.rs` when a device is opened. Sysfs is used on kernels before 6.13 and 6.17,
//! and only where it shows the same interface: a process may see the sysfs of another network
//! namespace.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::joining;
use super::link::InterfaceLink;
use super::poller::{PollDrive, Poller};
use super::system::System;
use super::thread::{self, ThreadStanding};
use super::threaded::{Napi, NapiSetting, Netdev};
use crate::interface::InterfaceControl;

/// The real system for one interface.
#[derive(Debug)]
pub(super) struct Linux {
    /// Answers what the interface is called now: it may be renamed while it is held.
    control: InterfaceControl,
    link: InterfaceLink,
    netdev: Netdev,
}

impl Linux {
    /// The interface `name` of the calling thread's network namespace.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        let link = InterfaceLink::of(name)?;
        Ok(Self { control: InterfaceControl::open()?, link, netdev: Netdev::open()? })
    }

    /// What it is called now.
    fn name(&self) -> io::Result<String> {
        self.control.name_of(self.link.index.cast_signed())
    }

    fn file(&self, name: &str) -> io::Result<PathBuf> {
        let folder = PathBuf::from("/sys/class/net").join(self.name()?);
        let index = std::fs::read_to_string(folder.join("ifindex"))?;
        match index.trim().parse() == Ok(self.link.index) {
            true => Ok(folder.join(name)),
            false => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }

    fn read(&self, name: &str) -> Option<u64> {
        std::fs::read_to_string(self.file(name).ok()?).ok()?.trim().parse().ok()
    }

    fn write(&self, name: &str, value: u64) -> io::Result<()> {
        std::fs::write(self.file(name)?, value.to_string())
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

impl System for Linux {
    fn link(&self) -> io::Result<InterfaceLink> {
        InterfaceLink::of(&self.name()?)
    }

    fn napis(&self) -> io::Result<Vec<Napi>> {
        let mut all = self.netdev.list(self.link.index)?;
        // The kernel lists the newest first; drivers make them in the order of their queues.
        all.sort_by_key(|napi| napi.id);
        for napi in &mut all {
            if napi.setting.threaded.is_none() {
                napi.setting.threaded = self.read("threaded").map(|value| value != 0);
            }
        }
        Ok(all)
    }

    fn set_napi(&self, id: u32, wish: &NapiSetting) -> io::Result<()> {
        match self.netdev.set(id, wish) {
            Err(error) if is_unknown(&error) => {}
            done => return done,
        }
        match self.netdev.set(id, &NapiSetting { threaded: None, ..*wish }) {
            Err(error) if is_unknown(&error) => {
                self.write("napi_defer_hard_irqs", u64::from(wish.defer))?;
                self.write("gro_flush_timeout", wish.flush_nanos)?;
            }
            done => done?,
        }
        wish.threaded.map_or(Ok(()), |threaded| self.write("threaded", u64::from(threaded)))
    }

    fn joins(&self) -> io::Result<bool> {
        joining::is_on(&self.name()?)
    }

    fn set_joins(&self, on: bool) -> io::Result<()> {
        joining::set(&self.name()?, on)
    }

    fn standing(&self, thread: u32) -> io::Result<ThreadStanding> {
        thread::standing(thread)
    }

    fn pin(&self, thread: u32, cores: &[usize]) -> io::Result<()> {
        thread::pin(thread, cores)
    }

    fn set_nice(&self, thread: u32, nice: i32) -> io::Result<()> {
        thread::set_nice(thread, nice)
    }

    fn set_slice(&self, thread: u32, slice: Duration) -> io::Result<()> {
        thread::set_slice(thread, slice)
    }

    fn group(&self, thread: Option<u32>) -> io::Result<String> {
        thread.map_or_else(thread::our_group, thread::group)
    }

    fn driver(&self, ids: &[u32]) -> io::Result<Box<dyn PollDrive>> {
        Ok(Box::new(Poller::open(ids)?))
    }

    fn set_turns(&self, thread: u32, nice: i32, slice: Duration) -> io::Result<()> {
        thread::set_turns(thread, nice, slice)
    }

    fn again(&self) -> io::Result<Box<dyn System>> {
        Ok(Box::new(Self::of(&self.name()?)?))
    }

    fn thread_time(&self, thread: u32) -> io::Result<std::fs::File> {
        crate::thread_time::ThreadTime::file_of(thread)
    }

    fn move_to(&self, thread: u32, group: &str) -> io::Result<()> {
        thread::move_to(thread, group)
    }
}
