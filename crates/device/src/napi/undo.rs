//! `PlacementUndo`: one setting of the system as it was before us.
//!
//! Collected by `napi.rs` before each change, written to the note as a line, and applied in
//! reverse order when the device closes.

use std::fmt;
use std::io;
use std::time::Duration;

use super::system::System;
use super::thread::ThreadStanding;
use super::threaded::NapiSetting;

/// Settings that a note may hold: far above any card's receive halves.
pub(super) const UNDO_MAX: usize = 1024;

/// One previous setting that can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlacementUndo {
    /// Whether packets were joined on arrival.
    Joining(bool),
    /// How a receive half was set.
    Napi(u32, NapiSetting),
    /// How a thread that was there before us stood, and in which group.
    Thread(u32, ThreadStanding, String),
}

impl PlacementUndo {
    /// Sets it as it was. What has vanished meanwhile needs no undoing.
    ///
    /// # Errors
    /// The system rejects the setting although the object still exists.
    pub(super) fn apply(&self, system: &dyn System) -> io::Result<()> {
        let done = match self {
            // A setting that was never changed, because the change was denied, needs no permission.
            Self::Joining(on) if system.joins().is_ok_and(|joins| joins == *on) => Ok(()),
            Self::Joining(on) => system.set_joins(*on),
            Self::Napi(id, setting) => {
                let napis = system.napis().unwrap_or_default();
                match napis.iter().find(|napi| napi.id == *id) {
                    Some(napi) if napi.setting == *setting => Ok(()),
                    _ => system.set_napi(*id, setting),
                }
            }
            Self::Thread(thread, ThreadStanding { cores, nice }, group) => {
                // Its number may be another process's by now.
                let is_there =
                    system.napis().map(|all| all.iter().any(|n| n.thread == Some(*thread)));
                if !is_there.unwrap_or(false) {
                    return Ok(());
                }
                // Each for itself: one that is refused does not keep the others.
                let all = [
                    system.set_nice(*thread, *nice),
                    system.set_slice(*thread, Duration::ZERO).or(Ok(())),
                    system.pin(*thread, cores),
                    if group.is_empty() { Ok(()) } else { system.move_to(*thread, group) },
                ];
                all.into_iter().collect()
            }
        };
        match done {
            Err(error) if is_gone(&error) => Ok(()),
            done => done,
        }
    }

    /// The lines of a note. What cannot be read is left out.
    pub(super) fn read_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::read).take(UNDO_MAX).collect()
    }

    fn read(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let mut words = rest.splitn(4, ' ');
        let mut next = || words.next();
        match word {
            "joining" => Some(Self::Joining(next()? == "1")),
            "napi" => {
                let id = next()?.parse().ok()?;
                let (defer, flush_nanos) = (next()?.parse().ok()?, next()?.parse().ok()?);
                let threaded = match next()? {
                    "0" => Some(false),
                    "1" => Some(true),
                    _ => None,
                };
                Some(Self::Napi(id, NapiSetting { defer, flush_nanos, threaded }))
            }
            "thread" => {
                let (thread, nice) = (next()?.parse().ok()?, next()?.parse().ok()?);
                let cores = next()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
                let group = next().unwrap_or_default().to_owned();
                Some(Self::Thread(thread, ThreadStanding { cores, nice }, group))
            }
            _ => None,
        }
    }
}

/// Whether an interface, a receive half or a thread is there no more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ESRCH))
}

impl fmt::Display for PlacementUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joining(on) => write!(f, "joining {}", u8::from(*on)),
            Self::Napi(id, NapiSetting { defer, flush_nanos, threaded }) => {
                let threaded = threaded.map_or("-", |on| if on { "1" } else { "0" });
                write!(f, "napi {id} {defer} {flush_nanos} {threaded}")
            }
            Self::Thread(thread, ThreadStanding { cores, nice }, group) => {
                let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
                write!(f, "thread {thread} {nice} {} {group}", cores.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_undone_is_read_back_and_nonsense_is_left_out() {
        let all = [
            PlacementUndo::Joining(true),
            PlacementUndo::Napi(
                8195,
                NapiSetting { defer: 2, flush_nanos: 9, threaded: Some(false) },
            ),
            PlacementUndo::Napi(1, NapiSetting { defer: 0, flush_nanos: 0, threaded: None }),
            PlacementUndo::Thread(
                7,
                ThreadStanding { cores: vec![0, 3], nice: -5 },
                "/a b/c".to_owned(),
            ),
            PlacementUndo::Thread(7, ThreadStanding { cores: vec![1], nice: 0 }, String::new()),
        ];
        let text: String = all.iter().map(|undo| format!("{undo}\n")).collect();
        assert_eq!(PlacementUndo::read_all(&text), all);
        assert_eq!(PlacementUndo::read_all("napi x\nthread 1\njoining\n\nnapi 1 2\n\u{ff}"), []);
    }
}
