//! A guard that outlives its process, and its successor.

use std::path::PathBuf;
use std::process::Command;

use crate::rig::{self, IFACE, Rig, config, connect_and_echo, counted, echo, server, skip, start};
use floodwall_guard::{Guard, GuardConfig, Watch, pins};
use rustix::thread::UnshareFlags;

const PORT: u16 = 7000;

/// A BPF file system of this thread's own.
fn file_system() -> Option<PathBuf> {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    let own = rustix::thread::unshare(UnshareFlags::NEWNS);
    let folder = std::env::temp_dir().join(format!("floodwall-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let mounted = own.is_ok()
        && run(Command::new("mount").args(["--make-rprivate", "/"]))
        && run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&folder));
    if !mounted {
        skip("no BPF file system can be mounted");
        return None;
    }
    Some(folder)
}

#[test]
fn pinned_it_goes_on_alone_and_is_replaced_without_a_failure() {
    let Some(rig) = Rig::new() else { return };
    let Some(folder) = file_system() else { return };
    let folder = folder.join(IFACE);
    for v6 in [false, true] {
        echo(server(v6, PORT));
    }
    let pinned = |n| GuardConfig {
        pin: Some(folder.clone()),
        secret: rig::secret(n),
        ..config(&[PORT], Watch::Always)
    };
    let connect = |count| {
        for v6 in [false, true] {
            for _ in 0..count {
                rig.run(move || connect_and_echo(server(v6, PORT))).unwrap();
            }
        }
    };
    let Some(guard) = start(pinned(1)) else { return };
    connect(3);
    drop(guard);
    connect(3);
    let status = pins::status(&folder, IFACE).unwrap();
    let answered = |name| status.ports[0].counts().find(|it| it.0 == name).unwrap().1;
    assert_eq!((status.ports[0].port, answered("adopted")), (PORT, 12), "it went on alone");
    assert!(Guard::start(config(&[PORT], Watch::Always)).is_err(), "without --pin it is busy");
    // Successors under connections, each with another secret, which gives way to the one in force.
    let connecting = rig.run(|| {
        std::thread::spawn(|| {
            (0..300).filter(|n| connect_and_echo(server(n % 2 == 1, PORT)).is_err()).count()
        })
    });
    let mut last = None;
    for n in 2..5 {
        last = Some(Guard::start(pinned(n)).unwrap());
    }
    assert_eq!(connecting.join().unwrap(), 0);
    connect(3);
    assert!(counted(last.as_ref().unwrap(), "adopted") >= 6);
    drop(last);
    pins::remove(&folder).unwrap();
    assert!(!folder.exists());
    connect(1);
    let again = Guard::start(config(&[PORT], Watch::Always)).unwrap();
    connect(1);
    assert_eq!(counted(&again, "adopted"), 2, "the interface was free");
}
