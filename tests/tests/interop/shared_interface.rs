//! `floodwall run` on an interface that the host uses too, even with its link address: which
//! station receives which frames, and that nothing is left behind when the process is killed.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::attacks::ADDRESSES;
use crate::binary::floodwall;
use crate::command::{Process, ip, shown_by_ip};
use crate::instance::Folder;
use crate::link::{MTU, give_v6};
use crate::namespace::{inside, skip, until};
use crate::site::{ETH, Host};

/// The interface that both use, and its link address.
const SHARED: &str = "shared0";
const MAC: &str = "02:00:00:00:00:0a";
const PATIENCE: Duration = Duration::from_secs(20);
/// Where the host's service listens, in the manner of ssh, and where ours does.
const HOSTS_PORT: u16 = 22;
const OUR_PORT: u16 = 7001;

fn both(v4: &str, v6: &str) -> [IpAddr; 2] {
    [v4, v6].map(|addr| addr.parse().unwrap())
}

/// The host's interface with its addresses, and a client at the other end of the cable.
fn cable() -> Host {
    let client = Host::at(SHARED, "far0", MTU);
    assert!(ip(&format!("link set {SHARED} address {MAC}")));
    assert!(ip(&format!("link set {SHARED} addrgenmode none up")));
    assert!(ip(&format!("addr add 10.77.0.3/24 dev {SHARED}")) && give_v6("fd77::3/64", SHARED));
    client.inside(|| {
        assert!(ip(&format!("addr add 10.77.0.1/24 dev {ETH}")) && give_v6("fd77::1/64", ETH));
    });
    client
}

/// The host's service: it echoes what it receives, connection by connection.
fn serve() {
    let listener = TcpListener::bind(("::", HOSTS_PORT)).unwrap();
    let serve = move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut word = [0; 5];
            if stream.read_exact(&mut word).is_ok() {
                let _ = stream.write_all(&word);
            }
        }
    };
    // It ends with the process: no client connects to it any more.
    drop(thread::Builder::new().spawn(serve).unwrap());
}

/// Whether the host's service answers the client.
fn host_answers(client: &Host) -> bool {
    let answers = |addr| {
        let to = SocketAddr::new(addr, HOSTS_PORT);
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        stream.write_all(b"hello").ok()?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).ok()?;
        Some(word == *b"hello")
    };
    client.inside(|| both("10.77.0.3", "fd77::3").into_iter().all(|to| answers(to) == Some(true)))
}

/// Whether our service answers the client once, in both families.
fn we_answer(client: &Host) -> bool {
    let answers = |addr: IpAddr| {
        let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
        socket.send_to(b"hello", (addr, OUR_PORT)).ok()?;
        let (len, from) = socket.recv_from(&mut [0; 16]).ok()?;
        Some(len == 5 && from.ip() == addr)
    };
    client.inside(|| both("10.77.0.2", "fd77::2").into_iter().all(|to| answers(to) == Some(true)))
}

/// Whether a program is attached to the interface.
fn has_program() -> bool {
    shown_by_ip(&format!("-d link show dev {SHARED}")).contains("xdp")
}

/// Ours, on the shared interface; `None`, and said so, where this machine cannot.
fn start(mode: &str, folder: &Folder, client: &Host) -> Option<Process> {
    let socket = folder.file("control");
    let words = format!(
        "run --device xdp:{SHARED},mode={mode} --mac {MAC} --kernel-half leave {ADDRESSES} \
         --accept-ra=false --service udp-echo:{OUR_PORT} --socket {socket}"
    );
    let mut process = Process::start(floodwall()?.to_str()?, &words, b"")?;
    if until(PATIENCE, || process.has_ended() || we_answer(client)) && !process.has_ended() {
        return Some(process);
    }
    let said = process.end();
    assert!(said.complaint.contains("CAP_BPF"), "{}", said.complaint);
    skip(&said.complaint);
    None
}

#[test]
fn the_host_keeps_its_services_and_a_killed_process_leaves_nothing_behind() {
    inside(|| {
        serve();
        for mode in ["native", "generic"] {
            let (folder, client) = (Folder::new(), cable());
            assert!(until(PATIENCE, || host_answers(&client)), "{mode}: before");
            for round in 0..2 {
                let Some(process) = start(mode, &folder, &client) else { return };
                assert!(has_program(), "{mode} {round}");
                assert!(host_answers(&client), "{mode} {round}: beside us");
                assert!(we_answer(&client), "{mode} {round}: beside the host");
                process.kill();
                assert!(until(PATIENCE, || !has_program()), "{mode} {round}: it stays attached");
                assert!(host_answers(&client), "{mode} {round}: afterwards");
                assert!(!we_answer(&client), "{mode} {round}: no answer");
            }
            let Some(process) = start(mode, &folder, &client) else { return };
            let said = process.end();
            assert!(said.complaint.contains("same link address"), "{}", said.complaint);
            assert!(
                said.complaint.trim_end().ends_with("every packet is accounted for exactly once")
            );
            assert!(ip(&format!("link del {SHARED}")));
        }
    });
}
