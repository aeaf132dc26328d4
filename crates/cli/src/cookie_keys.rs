//! The file with the secret of SYN cookies, and the wall clock that selects the keys in force.
//!
//! `run` reads the file before anything is opened, and refuses to start without it; the watch
//! thread looks at it again [four times a second](crate::watch) and gives what it finds to every
//! worker. A file that is missing, short or open to others is reported once, and the keys in force
//! stay. Invariant: the owner and mode are checked on the descriptor from which the secret is read,
//! and the secret appears in no message.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::{Clock, Control, ControlQueue, Shown, WorkerCommand, entropy};
use floodwall_stack::tcp_set::{Secret, SecretError};
use floodwall_stack::{Host, Stack};
use thiserror::Error;

/// The maximum that is read: far more than any secret needs.
const BYTES_MAX: u64 = 4096;
/// The change of the wall clock from which on the workers are notified.
const SET_BY: Duration = Duration::from_millis(200);

/// Why a file gives no secret.
#[derive(Debug, Error)]
pub(crate) enum KeyFileError {
    /// It cannot be read.
    #[error("cannot be read: {0}; name a file of 32 or more random bytes")]
    Unreadable(#[from] io::Error),
    /// It is a directory, a device, a pipe.
    #[error("is no regular file; name a file of 32 or more random bytes")]
    NotAFile,
    /// Others may read or write it.
    #[error(
        "is open to all users (mode {0:04o}), so its secret is none; chmod it to 0640 or less, \
             and write a new one"
    )]
    Open(u32),
    /// It is longer than any secret.
    #[error("is longer than {BYTES_MAX} bytes; a secret is 32 or more random bytes")]
    Long,
    /// Its bytes are no secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What distinguishes one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyFileStamp {
    inode: (u64, u64),
    changed: (i64, i64),
    len: u64,
    mode: u32,
}

impl KeyFileStamp {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let it = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: (it.dev(), it.ino()),
            changed: (it.ctime(), it.ctime_nsec()),
            len: it.len(),
            mode: it.mode(),
        })
    }
}

/// The secret in a file.
pub(crate) fn read(path: &Path) -> Result<Secret, KeyFileError> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(KeyFileError::NotAFile);
    }
    if about.mode() & 0o007 != 0 {
        return Err(KeyFileError::Open(about.mode() & 0o7777));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(KeyFileError::Long);
    }
    Ok(Secret::from_bytes(&bytes)?)
}

/// The secret in force: for the workers that start, and for those that start again.
#[derive(Clone, Debug, Default)]
pub(crate) struct CookieKeys {
    path: Option<PathBuf>,
    secret: Arc<Mutex<Option<Secret>>>,
    /// Where no file is named: what several workers of this process have in common.
    common: Option<Secret>,
}

impl CookieKeys {
    /// Reads the file, where one is named. Without it several workers get a random secret in
    /// common, so that the program at an interface can answer SYNs for all of them.
    pub(crate) fn open(path: Option<&Path>, workers: usize) -> Result<Self, String> {
        let secret = path.map(|path| {
            read(path).map_err(|error| format!("the cookie secret {} {error}", path.display()))
        });
        let secret = Arc::new(Mutex::new(secret.transpose()?));
        let common = match path.is_none() && workers > 1 {
            true => {
                let mut random = entropy::randomness().map_err(|error| error.to_string())?;
                Some(Secret::random(&mut random.secret))
            }
            false => None,
        };
        Ok(Self { path: path.map(Path::to_owned), secret, common })
    }

    fn secret(&self) -> Option<Secret> {
        *self.secret.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Configures a new stack.
    pub(crate) fn tell(&self, stack: &mut Stack, now: Instant) {
        stack.set_wall_clock(now, Clock::new().unix_time());
        if let Some(secret) = self.secret() {
            stack.set_cookie_secret(secret, now);
        } else if let Some(secret) = self.common {
            stack.set_common_cookie_secret(secret, now);
        }
    }

    /// Starts the watch of the file and of the wall clock.
    pub(crate) fn watched(&self, workers: Vec<Control<Shown<Host>>>) -> KeyWatch {
        let stamp = self.path.as_deref().and_then(KeyFileStamp::of);
        KeyWatch { keys: self.clone(), workers, stamp, offset: None }
    }

    /// Checks the file. Returns the message to print, or another secret; `None` without a change.
    fn look(&self, stamp: &mut Option<KeyFileStamp>) -> Option<Result<Secret, String>> {
        let path = self.path.as_deref()?;
        let now = KeyFileStamp::of(path);
        if core::mem::replace(stamp, now) == now {
            return None;
        }
        let name = path.display();
        match read(path) {
            Ok(secret) => {
                let mut last = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
                (last.replace(secret) != Some(secret)).then_some(Ok(secret))
            }
            Err(error) => {
                Some(Err(format!("the cookie secret {name} {error}. The old keys stay in force")))
            }
        }
    }
}

/// See [`CookieKeys::watched`].
pub(crate) struct KeyWatch {
    keys: CookieKeys,
    workers: Vec<Control<Shown<Host>>>,
    stamp: Option<KeyFileStamp>,
    /// The wall clock that the workers have: how far it is ahead of the monotonic one.
    offset: Option<Duration>,
}

impl KeyWatch {
    /// One look: a system call each, and a word to the workers where something is another.
    pub(crate) fn look(&mut self) {
        let clock = Clock::new();
        let (now, today) = (clock.now(), clock.unix_time());
        let offset = today.saturating_sub(Duration::from_nanos(now.as_nanos()));
        let set = self.offset.is_none_or(|before| before.abs_diff(offset) > SET_BY);
        if set && self.tell(move |stack, _| stack.set_wall_clock(now, today)) {
            self.offset = Some(offset);
        }
        match self.keys.look(&mut self.stamp) {
            None => {}
            Some(Ok(secret)) => {
                self.tell(move |stack, now| {
                    stack.set_cookie_secret(secret, now);
                });
                tracing::info!("another cookie secret is in force");
            }
            Some(Err(complaint)) => tracing::warn!("{complaint}"),
        }
    }

    /// Whether all workers were notified. One that is down is configured when it starts again.
    fn tell(&self, what: impl Fn(&mut Stack, Instant) + Clone + Send + 'static) -> bool {
        let told = self.workers.iter().map(|worker| {
            let what = what.clone();
            worker.post(WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Host>>| {
                let now = desk.now;
                what(desk.engine.engine.stack_mut(), now);
            }))
        });
        // All of them, even if the first fails.
        told.filter(Result::is_err).count() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("floodwall-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join("secret");
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn bytes(n: u8) -> Vec<u8> {
        (0..32).map(|byte| byte ^ n).collect()
    }

    #[test]
    fn each_file_that_gives_no_secret_is_refused_with_its_remedy() {
        let folder = Folder::new("keys");
        let said = |path: &Path| CookieKeys::open(Some(path), 1).unwrap_err();
        let missing = said(&folder.0.join("nowhere"));
        assert!(missing.contains("nowhere") && missing.contains("cannot be read"), "{missing}");
        let short = said(&folder.write(&[7; 31], 0o600));
        assert!(short.contains("31 bytes") && short.contains("32"), "{short}");
        let open = said(&folder.write(&bytes(1), 0o644));
        assert!(open.contains("0644") && open.contains("chmod"), "{open}");
        let long = said(&folder.write(&[3; 5000], 0o600));
        assert!(long.contains("4096"), "{long}");
        assert!(said(&folder.0).contains("no regular file"));
        assert!(
            said(&folder.write(&[5; 64], 0o600)).contains("bytes of the cookie secret are equal")
        );
        let good = CookieKeys::open(Some(&folder.write(&bytes(1), 0o640)), 2).unwrap();
        assert_eq!(good.secret(), Some(Secret::from_bytes(&bytes(1)).unwrap()));
        assert_eq!(good.common, None, "a file is what all workers have");
        let [one, several] = [1, 2].map(|workers| CookieKeys::open(None, workers).unwrap());
        assert_eq!((one.secret(), one.common, several.secret()), (None, None, None));
        assert_ne!(several.common, CookieKeys::open(None, 2).unwrap().common);
        assert_eq!(several.common, several.clone().common);
    }

    #[test]
    fn a_file_that_goes_bad_leaves_the_old_keys_and_one_that_is_good_again_is_taken() {
        let folder = Folder::new("keys-watched");
        let path = folder.write(&bytes(1), 0o600);
        let keys = CookieKeys::open(Some(&path), 1).unwrap();
        let first = keys.secret();
        let mut stamp = KeyFileStamp::of(&path);
        assert!(keys.look(&mut stamp).is_none(), "nothing has changed");
        fs::remove_file(&path).unwrap();
        let complaint = keys.look(&mut stamp).unwrap().unwrap_err();
        assert!(complaint.contains("The old keys stay in force"), "{complaint}");
        assert!(keys.look(&mut stamp).is_none(), "said once");
        for (content, mode) in [(&bytes(2)[..20], 0o600), (&bytes(2)[..], 0o644)] {
            folder.write(content, mode);
            assert!(keys.look(&mut stamp).unwrap().is_err());
            assert_eq!(keys.secret(), first);
        }
        folder.write(&bytes(1), 0o600);
        assert!(keys.look(&mut stamp).is_none(), "the same secret again");
        folder.write(&bytes(2), 0o600);
        let second = keys.look(&mut stamp).unwrap().unwrap();
        assert!(Some(second) != first && keys.secret() == Some(second));
    }
}
