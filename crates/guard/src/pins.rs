//! What outlives its process: links and maps in a folder of a BPF file system.
//!
//! Used by `guard.rs` and by `--status` and `--unpin`. A guard that starts with the same folder
//! takes the place of what is pinned: its programs are put behind the links, tc first, and its maps
//! replace the old ones. Removing the folder ends the guard.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floodwall_bpf::cookie::host::{HostSettings, PORT_ENTRIES, RANK_WORDS, SETTING_WORDS, Tally};
use floodwall_device::host_bpf::{HostLink, HostMap, HostMapKind, boot_nanos};

use crate::loaded::Loaded;
use crate::status::{self, PortStatus, Status};

/// Where guards are pinned, unless it is said.
pub const FOLDER: &str = "/sys/fs/bpf/floodwall";

const CLASSIFY: &str = "xdp";
const ADOPT: &str = "tc";
const SETTINGS: &str = "settings";
const PORTS: &str = "ports";
const TALLIES: &str = "tallies";
const RANKED: &str = "ranked";
const PROGRAMS: &str = "programs";

/// What is pinned of an interface.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) folder: PathBuf,
    pub(crate) classify: HostLink,
    pub(crate) adopt: HostLink,
    settings: HostMap,
}

fn settings(folder: &Path) -> io::Result<HostMap> {
    HostMap::open(&folder.join(SETTINGS), HostMapKind::Array, 4, SETTING_WORDS * 8)
}

impl Pins {
    /// Opens it; `None` where there is nothing, or not all of it.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        Some(Self {
            folder: folder.to_owned(),
            classify: HostLink::open(&folder.join(CLASSIFY)).ok()?,
            adopt: HostLink::open(&folder.join(ADOPT)).ok()?,
            settings: settings(folder).ok()?,
        })
    }

    /// Secret and clock in force.
    pub(crate) fn keys(&self) -> io::Result<[(u64, u64); 2]> {
        Ok(HostSettings::keys_of(&words(&self.settings)?))
    }
}

fn words(settings: &HostMap) -> io::Result<[u64; SETTING_WORDS]> {
    let bytes = settings.get(&0_u32.to_ne_bytes())?;
    let mut words = [0; SETTING_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    }
    Ok(words)
}

/// Pins all of it.
pub(crate) fn keep(
    folder: &Path,
    loaded: &Loaded,
    classify: &HostLink,
    adopt: &HostLink,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    keep_maps(folder, loaded)?;
    adopt.pin(&folder.join(ADOPT))?;
    classify.pin(&folder.join(CLASSIFY))
}

/// Pins the maps, in the place of others.
pub(crate) fn keep_maps(folder: &Path, loaded: &Loaded) -> io::Result<()> {
    let maps = [
        (SETTINGS, &loaded.settings),
        (PORTS, &loaded.ports),
        (TALLIES, &loaded.tallies),
        (RANKED, &loaded.ranked),
        // The kernel empties a map of programs that user space no longer holds.
        (PROGRAMS, &loaded.programs),
    ];
    for (name, map) in maps {
        let path = folder.join(name);
        gone(fs::remove_file(&path))?;
        map.pin(&path)?;
    }
    Ok(())
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Ends a guard that is pinned: XDP first, so that no cookie is made that is not redeemed.
///
/// # Errors
/// A file cannot be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    for name in [CLASSIFY, ADOPT, SETTINGS, PORTS, TALLIES, RANKED, PROGRAMS] {
        gone(fs::remove_file(folder.join(name)))?;
    }
    gone(fs::remove_dir(folder))
}

/// What a pinned guard has counted after the end of its process.
///
/// # Errors
/// Nothing is pinned there.
pub fn status(folder: &Path, interface: &str) -> io::Result<Status> {
    let ports = HostMap::open(&folder.join(PORTS), HostMapKind::Array, 4, 8)?;
    let bytes = Tally::WORDS * 8;
    let tallies = HostMap::open(&folder.join(TALLIES), HostMapKind::PerCoreArray, 4, bytes)?;
    let [_, _, mode, ..] = words(&settings(folder)?)?;
    let (mut found, mut numbers, now) = (Vec::new(), BTreeMap::new(), boot_nanos());
    for port in 0..PORT_ENTRIES as u32 {
        let value = ports.get(&port.to_ne_bytes())?;
        for (number, protocol) in value.iter().zip(["tcp", "udp"]).filter(|(n, _)| **n != 0) {
            let values = tallies.get(&u32::from(*number).to_ne_bytes())?;
            found.push(PortStatus::of(protocol, port as u16, &values, now));
            numbers.insert(*number, (protocol, port as u16));
        }
    }
    let refused = HostMap::open(&folder.join(RANKED), HostMapKind::Array, 4, RANK_WORDS * 8)
        .and_then(|ranked| status::refused(&ranked, now, |number| numbers.get(&number).copied()))?;
    let (interface, paused) = (interface.to_owned(), mode & 2 != 0);
    Ok(Status { interface, paused, ports: found, refused })
}
