//! The paths of control sockets, and how an instance takes its own.
//!
//! Invariant: one running instance per path. A socket left by an instance that is gone is
//! recognized, because no process answers on it, and replaced.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use thiserror::Error;

use crate::exit::Exit;

/// The folder for sockets that were given no path: `$XDG_RUNTIME_DIR/floodwall` or
/// `/run/floodwall`.
fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("floodwall"),
        None => PathBuf::from("/run/floodwall"),
    }
}

/// The socket of the instance on `device` of this network namespace.
pub(crate) fn of_device(device: &str) -> PathBuf {
    folder().join(format!("{device}{}.sock", of_namespace(namespace())))
}

/// The socket of the guard of an interface; not one of [`all`].
pub(crate) fn of_guard(interface: &str) -> PathBuf {
    folder().join(format!("{interface}{}.guard", of_namespace(namespace())))
}

/// The number of this network namespace where it is not the one of the system's first process:
/// interfaces of several namespaces may have one name.
fn namespace() -> Option<u64> {
    let number = |path: &str| std::fs::metadata(path).ok().map(|found| found.ino());
    let (own, first) = (number("/proc/thread-self/ns/net")?, number("/proc/1/ns/net")?);
    (own != first).then_some(own)
}

/// What the names of a namespace's sockets end with, before the extension.
fn of_namespace(namespace: Option<u64>) -> String {
    namespace.map_or_else(String::new, |number| format!("@{number}"))
}

/// Whether a socket is of this namespace by its name.
fn is_of(path: &Path, namespace: Option<u64>) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let number = stem.rsplit_once('@').and_then(|(_, number)| number.parse().ok());
    number == namespace
}

/// The sockets of all instances that were given no path, or one in a folder of its own there,
/// sorted.
pub(crate) fn all() -> Vec<PathBuf> {
    with_extension("sock")
}

/// The sockets of guards in those folders, sorted.
pub(crate) fn guards() -> Vec<PathBuf> {
    with_extension("guard")
}

fn with_extension(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    for folder in [folder(), PathBuf::from("/run/floodwall")] {
        let paths = inside(&folder);
        // A service manager makes a folder for each instance.
        let deeper = paths.iter().flat_map(|path| inside(path)).collect::<Vec<_>>();
        let all = paths.into_iter().chain(deeper);
        found.extend(all.filter(|path| path.extension().is_some_and(|it| it == extension)));
    }
    found.sort();
    found.dedup();
    found
}

/// Why an instance cannot have its socket.
#[derive(Debug, Error)]
pub(crate) enum TakenError {
    #[error(
        "another floodwall answers on {path}; stop that one, or choose another --device and \
         --socket",
        path = .0.display()
    )]
    Alive(PathBuf),
    #[error("the control socket {path} cannot be made: {error}; choose a path with --socket",
        path = .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Whether an instance answers at `path`.
pub(crate) fn is_alive(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// A listening socket that is removed when the instance ends.
#[derive(Debug)]
pub(crate) struct SocketTaken {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
}

impl SocketTaken {
    /// Binds the socket for its owner only, in place of one without a listener.
    pub(crate) fn take(path: &Path) -> Result<Self, TakenError> {
        let fail = |error| TakenError::Io { path: path.to_owned(), error };
        if is_alive(path) {
            return Err(TakenError::Alive(path.to_owned()));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder).map_err(fail)?;
        }
        remove_stale(path).map_err(fail)?;
        let listener = bind(path).map_err(fail)?;
        let taken = Self { listener, path: path.to_owned() };
        taken.listener.set_nonblocking(true).map_err(fail)?;
        Ok(taken)
    }
}

/// A listening socket that only its owner can ever connect to: Linux gives the file the mode that
/// the socket has when it is bound.
fn bind(path: &Path) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Others behind this many are refused by the system.
    rustix::net::listen(&socket, 128)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket without a listener; never anything that is not a socket.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Drop for SocketTaken {
    fn drop(&mut self) {
        // If it has been removed already, nothing is left to do.
        let _ = std::fs::remove_file(&self.path);
    }
}
/// The named socket, or the only one on which an instance answers.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, Exit> {
    if let Some(socket) = named {
        return Ok(socket.to_owned());
    }
    let mut found = all();
    if found.len() > 1 {
        found.retain(|path| is_alive(path));
    }
    let namespace = namespace();
    if found.len() > 1 && found.iter().any(|path| is_of(path, namespace)) {
        found.retain(|path| is_of(path, namespace));
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => {
            eprintln!(
                "floodwall: no instance is reached: there is no control socket; start one with \
                 `floodwall run`, or name its socket with --socket"
            );
            Err(Exit::Unreachable)
        }
        (Some(last), false) => {
            eprintln!("floodwall: several instances run; select one with --socket:");
            for path in found.iter().chain([&last]) {
                eprintln!("  {}", path.display());
            }
            Err(Exit::Usage)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_two_namespaces_do_not_collide_and_each_finds_its_own() {
        let name = |namespace| format!("eth0{}.sock", of_namespace(namespace));
        let (first, other) = (name(None), name(Some(4_026_532_345)));
        assert_eq!((&*first, &*other), ("eth0.sock", "eth0@4026532345.sock"));
        for (path, namespace, is_it) in [
            (&first, None, true),
            (&first, Some(4_026_532_345), false),
            (&other, Some(4_026_532_345), true),
            (&other, Some(1), false),
            (&other, None, false),
        ] {
            assert_eq!(is_of(Path::new(path), namespace), is_it, "{path} {namespace:?}");
        }
    }
}
