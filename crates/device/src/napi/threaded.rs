//! `Netdev`: the interface's receive halves (NAPI instances), listed and set through the generic
//! netlink family `netdev`.
//!
//! Called by `linux.rs`. Listing needs Linux 6.8 and no privilege; setting 6.13 and CAP_NET_ADMIN;
//! a thread of a single instance 6.17. Where the family is not available, `sysfs.rs` is used.
//! Reading: the kernel's `Documentation/netlink/specs/netdev.yaml`.

use std::io;

use super::netlink::{Netlink, NetlinkRequest, attributes, number};

const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;

const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_PID: u16 = 4;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NETDEV_A_NAPI_THREADED: u16 = 8;

/// The settings of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Napi {
    /// Its number in the system.
    pub(super) id: u32,
    /// The thread that runs it, where it has one.
    pub(super) thread: Option<u32>,
    /// What it is set to.
    pub(super) setting: NapiSetting,
}

/// What can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NapiSetting {
    /// How often in a row it finds nothing before it is called by the card again.
    pub(super) defer: u32,
    /// After how many nanoseconds it looks by itself while it is not called.
    pub(super) flush_nanos: u64,
    /// Whether it runs in a kernel thread; `None` where that is not reported per instance.
    pub(super) threaded: Option<bool>,
}

/// A netlink client for the NAPI instances of one interface.
#[derive(Debug)]
pub(super) struct Netdev {
    socket: Netlink,
    family: u16,
}

impl Netdev {
    /// Looks the family up.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Netlink::open(libc::NETLINK_GENERIC)?;
        let question =
            NetlinkRequest::new(libc::GENL_ID_CTRL as u16, 0, &[CTRL_CMD_GETFAMILY, 1, 0, 0])
                .with(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
        // An acknowledgement would come after the answer; without one the answer is the end.
        let answers = socket.ask_once(question)?;
        let family = attributes(answers.get(4..).unwrap_or_default())
            .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)
            .and_then(|(_, value)| number(value))
            .and_then(|id| u16::try_from(id).ok());
        let missing = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        Ok(Self { socket, family: family.ok_or_else(missing)? })
    }

    /// All instances of an interface that could be driven or have a thread, in order.
    pub(super) fn list(&self, index: u32) -> io::Result<Vec<Napi>> {
        let head = [NETDEV_CMD_NAPI_GET, 1, 0, 0];
        let question = NetlinkRequest::new(self.family, libc::NLM_F_DUMP, &head)
            .with(NETDEV_A_NAPI_IFINDEX, &index.to_ne_bytes());
        let answers = self.socket.ask(question)?;
        let mut all: Vec<_> = answers.iter().filter_map(|answer| read(answer, index)).collect();
        all.sort_by_key(|napi| napi.id);
        Ok(all)
    }

    /// Sets an instance.
    pub(super) fn set(&self, id: u32, wish: &NapiSetting) -> io::Result<()> {
        let head = [NETDEV_CMD_NAPI_SET, 1, 0, 0];
        let mut question = NetlinkRequest::new(self.family, libc::NLM_F_ACK, &head)
            .with(NETDEV_A_NAPI_ID, &id.to_ne_bytes())
            .with(NETDEV_A_NAPI_DEFER_HARD_IRQS, &wish.defer.to_ne_bytes())
            .with(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, &wish.flush_nanos.to_ne_bytes());
        if let Some(threaded) = wish.threaded {
            question = question.with(NETDEV_A_NAPI_THREADED, &u32::from(threaded).to_ne_bytes());
        }
        self.socket.ask(question).map(drop)
    }
}

fn read(answer: &[u8], index: u32) -> Option<Napi> {
    let mut napi = Napi::default();
    let mut ifindex = None;
    for (kind, value) in attributes(answer.get(4..)?) {
        let value = number(value);
        let small = value.and_then(|value| u32::try_from(value).ok());
        match kind {
            NETDEV_A_NAPI_IFINDEX => ifindex = small,
            NETDEV_A_NAPI_ID => napi.id = small?,
            NETDEV_A_NAPI_PID => napi.thread = small.filter(|pid| *pid > 0),
            NETDEV_A_NAPI_DEFER_HARD_IRQS => napi.setting.defer = small?,
            NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT => napi.setting.flush_nanos = value?,
            NETDEV_A_NAPI_THREADED => napi.setting.threaded = value.map(|value| value != 0),
            _ => {}
        }
    }
    (ifindex == Some(index) && napi.id != 0).then_some(napi)
}
