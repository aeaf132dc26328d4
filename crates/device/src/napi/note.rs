//! `PlacementNote`: what the system looked like before we set it, kept in a file while we hold it.
//!
//! Written by `napi.rs` before the first change. A process that is killed restores nothing;
//! the next one finds the note, restores, and starts anew, so that our settings are never mistaken
//! for the user's. The note is locked while its process runs: a second process on the same
//! interface changes nothing.
//!
//! Invariants: only this user, or root, may write in the file's directory. The file is bound to
//! this boot, this network namespace, and this interface's number, name and address. At most
//! [`BYTES_MAX`] are read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::link::InterfaceLink;
use super::undo::PlacementUndo;

/// Longest note: an interface with many receive halves has some 100 bytes each.
const BYTES_MAX: u64 = 1 << 18;
/// Retries where a process that ends removes the file concurrently.
const NOTE_TRIES: u32 = 8;

/// The note of one interface, locked by this process.
#[derive(Debug)]
pub(super) struct PlacementNote {
    file: File,
    path: PathBuf,
    /// The first line: which start of the system, and which interface.
    head: String,
}

/// What became of taking a note.
#[derive(Debug)]
pub(super) enum NoteTaken {
    /// It is ours; and what a process that was killed has left to be undone.
    Ours(PlacementNote, Vec<PlacementUndo>),
    /// Another running process holds it.
    Theirs,
    /// There is no place for it.
    Nowhere(io::Error),
}

impl PlacementNote {
    /// The note about this interface of the calling thread's namespace.
    pub(super) fn take(link: &InterfaceLink) -> NoteTaken {
        let InterfaceLink { index, name, address, .. } = link;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let head = format!("{} {name} {address}", boot.trim());
        let name = match std::fs::metadata("/proc/thread-self/ns/net") {
            Ok(space) => format!("placement-{}-{index}", space.ino()),
            Err(error) => return NoteTaken::Nowhere(error),
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for folder in folders() {
            match Self::take_in(&folder, &name, &head) {
                NoteTaken::Nowhere(error) => last = error,
                taken => return taken,
            }
        }
        NoteTaken::Nowhere(last)
    }

    /// As [`PlacementNote::take`], in a folder. A note with another head is stale.
    pub(super) fn take_in(folder: &Path, name: &str, head: &str) -> NoteTaken {
        let path = folder.join(name);
        for _ in 0..NOTE_TRIES {
            let file = match open(folder, &path) {
                Ok(file) => file,
                Err(error) => return NoteTaken::Nowhere(error),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return NoteTaken::Theirs,
                Err(error) => return NoteTaken::Nowhere(error.into()),
            }
            // Its previous owner may have removed it meanwhile: then a lock on it has no effect.
            let is_there = std::fs::metadata(&path).is_ok_and(|there| {
                file.metadata()
                    .is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            });
            if !is_there {
                continue;
            }
            let mut text = String::new();
            let _ = (&file).take(BYTES_MAX).read_to_string(&mut text);
            let left = match text.split_once('\n') {
                Some((line, lines)) if line == head => PlacementUndo::read_all(lines),
                _ => Vec::new(),
            };
            return NoteTaken::Ours(Self { file, path, head: head.to_owned() }, left);
        }
        NoteTaken::Theirs
    }

    /// Writes what is to be undone, before it is done.
    pub(super) fn write(&mut self, undo: &[PlacementUndo]) -> io::Result<()> {
        let mut text = format!("{}\n", self.head);
        undo.iter().for_each(|undo| text.push_str(&format!("{undo}\n")));
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }

    /// Everything is undone: the note goes.
    pub(super) fn remove(self) {
        // Where it cannot be removed, an empty file states that nothing is left to restore.
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/run/floodwall")];
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    folders.extend(own.map(|dir| PathBuf::from(dir).join("floodwall")));
    folders
}

fn open(folder: &Path, path: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("floodwall-note-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_note_of_a_process_that_was_killed_is_found_and_a_living_ones_is_respected() {
        let folder = folder("killed");
        let NoteTaken::Ours(mut note, left) = PlacementNote::take_in(&folder, "n", "boot eth0")
        else {
            panic!("free")
        };
        assert!(left.is_empty());
        note.write(&[PlacementUndo::Joining(false)]).unwrap();
        assert!(matches!(PlacementNote::take_in(&folder, "n", "boot eth0"), NoteTaken::Theirs));
        // As when it is killed: the lock goes with the descriptor, the file stays.
        drop(note);
        let NoteTaken::Ours(note, left) = PlacementNote::take_in(&folder, "n", "boot eth0") else {
            panic!("free again")
        };
        assert_eq!(left, [PlacementUndo::Joining(false)]);
        note.remove();
        let NoteTaken::Ours(note, left) = PlacementNote::take_in(&folder, "n", "boot eth0") else {
            panic!("and again")
        };
        assert!(left.is_empty());
        note.remove();
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_note_of_another_start_of_the_system_says_nothing() {
        let folder = folder("boot");
        std::fs::create_dir_all(&folder).unwrap();
        for text in ["another eth0\njoining 0\n", "boot eth1\njoining 0\n", "\u{0}\u{1}", ""] {
            std::fs::write(folder.join("n"), text).unwrap();
            let NoteTaken::Ours(note, left) = PlacementNote::take_in(&folder, "n", "boot eth0")
            else {
                panic!("free")
            };
            assert!(left.is_empty(), "{text:?}");
            note.remove();
        }
        std::fs::remove_dir(&folder).unwrap();
        let nowhere = PlacementNote::take_in(Path::new("/proc/no/such"), "n", "");
        assert!(matches!(nowhere, NoteTaken::Nowhere(_)), "{nowhere:?}");
    }
}
