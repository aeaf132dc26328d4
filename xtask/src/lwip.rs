//! `lwip`: builds lwIP from its Debian source, as a rival of the benches `tcp` and `udp`.
//!
//! The source is fetched by apt-get with lists of its own, so that the system's stay as they are
//! and need no `deb-src` line; `FLOODWALL_LWIP` may name a folder that has it already. All that is
//! made stands in the target folder. The driver of `crates/stack/benches/lwip` is linked with lwIP
//! twice, one copy for each end, of which all symbols but one are local.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Connections that an end has room for, a program for each.
pub(crate) const ROOMS: [u32; 2] = [80, 10_080];
/// A system's list of sources, by its name.
const LISTS: [&str; 2] =
    ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources"];

/// The programs, under the target folder.
pub(crate) fn driver(room: u32) -> Option<PathBuf> {
    let path = folder().ok()?.join(format!("driver-{room}"));
    path.exists().then_some(path)
}

/// Fetches and builds; an error is the reason why lwIP is skipped.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    let folder = folder()?;
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let source = match std::env::var_os("FLOODWALL_LWIP") {
        Some(path) => PathBuf::from(path),
        None => fetch(&folder)?,
    };
    let source = core_of(&source).ok_or(format!("no lwIP under {}", source.display()))?;
    for room in ROOMS {
        let program = link(root, &source, &folder, room)?;
        println!("lwip: {}", program.display());
    }
    Ok(())
}

fn folder() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).ok_or("no target folder")?;
    Ok(target.join("lwip"))
}

/// The folder with `core/tcp.c`, here or below.
fn core_of(path: &Path) -> Option<PathBuf> {
    let mut left = vec![path.to_path_buf()];
    while let Some(folder) = left.pop() {
        if folder.join("core/tcp.c").exists() {
            return Some(folder);
        }
        let below = fs::read_dir(&folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        left.extend(below.filter(|path| path.is_dir() && !path.is_symlink()));
    }
    None
}

/// The source by `apt-get source`, with lists in `folder`.
fn fetch(folder: &Path) -> Result<PathBuf, String> {
    let source = folder.join("source");
    if core_of(&source).is_some() {
        return Ok(source);
    }
    let lists = folder.join("lists");
    for path in [&lists.join("partial"), &source] {
        fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let list = LISTS.iter().find_map(|path| fs::read_to_string(path).ok());
    let list = list.ok_or(format!("no {}", LISTS.join(", no ")))?;
    let own = folder.join("own.sources");
    let list = list.replace("Types: deb\n", "Types: deb-src\n");
    fs::write(&own, list).map_err(|error| error.to_string())?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg(format!("-oDir::Etc::sourcelist={}", own.display()));
        command.args(["-oDir::Etc::sourceparts=/dev/null", "-oAPT::Sandbox::User=root", "-qq"]);
        command.arg(format!("-oDir::State::lists={}", lists.display()));
        run(command.args(words).current_dir(&source))
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "lwip"])?;
    let files = fs::read_dir(&source).map_err(|error| error.to_string())?;
    let mut files = files.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let archive = files.find(|name| name.contains(".orig.tar")).ok_or("apt-get: no archive")?;
    run(Command::new("tar").args(["xf", &archive]).current_dir(&source))?;
    Ok(source)
}

/// Compiles both copies and the driver.
fn link(root: &Path, source: &Path, folder: &Path, room: u32) -> Result<PathBuf, String> {
    let own = root.join("crates/stack/benches/lwip");
    let include = |path: &Path| format!("-I{}", path.display());
    let mut copies = Vec::new();
    for name in ["FIRST", "SECOND"] {
        let object = folder.join(format!("{name}-{room}.o"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O3", "-flto=auto", "-w", "-r", "-nostdlib"]);
        gcc.args(["-flinker-output=nolto-rel", &format!("-DFLOODWALL_PCBS={room}")]);
        gcc.args([format!("-DHOST={name}"), include(&own), include(&source.join("include"))]);
        for part in ["core", "core/ipv4", "core/ipv6"] {
            gcc.args(sources(&source.join(part))?);
        }
        run(gcc.arg(own.join("host.c")).arg("-o").arg(&object))?;
        let mut objcopy = Command::new("objcopy");
        run(objcopy.arg(format!("--keep-global-symbol={name}")).arg(&object))?;
        copies.push(object);
    }
    let program = folder.join(format!("driver-{room}"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O3", "-Wall", "-Wextra", &include(&own)]);
    run(gcc.arg(own.join("driver.c")).args(copies).arg("-o").arg(&program))?;
    Ok(program)
}

/// The C files of a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let all = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = all.filter_map(Result::ok).map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension() == Some(OsStr::new("c"))).collect())
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
