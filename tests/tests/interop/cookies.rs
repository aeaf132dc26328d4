//! Connections that are born by cookie, as Linux sees them: what `ss` shows of them, and what
//! becomes of handshakes when the file of keys changes or another instance takes over.
//!
//! Reading: `docs/design/syn-cookie.md`. Not here: floods (`syn_flood.rs`).

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use floodwall_base::Units;
use floodwall_stack::tcp_set::{
    ConnectionId, CookiePolicy, ListenerId, ProvenBy, RecvError, SynSaid, TcpSettings,
};
use floodwall_stack::{Application, Sockets, StartError};

use crate::bench::Bench;
use crate::binary::floodwall;
use crate::command::run;
use crate::instance::Folder;
use crate::link::{Ends, Kind, ends};
use crate::namespace::{inside, pause, skip};
use crate::syn_flood::{PATIENCE, PORT, Server, Stand, service, start};

const LINE: &[u8] = b"is anybody there?\n";

/// Listens, answers every SYN by cookie alone, reports the options of each SYN, and echoes what
/// arrives.
struct ByCookie {
    listener: Option<ListenerId>,
    open: Vec<ConnectionId>,
    tell: SyncSender<SynSaid>,
}

impl Application for ByCookie {
    fn name(&self) -> &str {
        "by-cookie"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any: SocketAddr = format!("[::]:{PORT}").parse().unwrap();
        let owner = sockets.tcp_owner()?;
        let listener = sockets.tcp_listen(any, &TcpSettings::default(), 64, owner)?;
        sockets.tcp_set_cookies(listener, CookiePolicy::Always).unwrap();
        self.listener = Some(listener);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let Some(listener) = self.listener else { return Units(0) };
        while let Ok(Some(id)) = sockets.tcp_accept(listener) {
            let said = sockets.tcp_syn_said(id).unwrap().expect("it came by a SYN");
            self.tell.try_send(said).unwrap();
            self.open.push(id);
        }
        let mut room = [0; LINE.len()];
        self.open.retain(|id| match sockets.tcp_recv(*id, &mut room) {
            Ok(0) => {
                let _ = sockets.tcp_close(*id);
                false
            }
            Ok(len) => {
                assert_eq!(sockets.tcp_send(*id, &room[..len]).unwrap(), len);
                true
            }
            Err(RecvError::WouldBlock) => true,
            Err(_) => false,
        });
        Units(1)
    }
}

/// A number of what `ss -i` shows, as in `snd_wnd:65536`.
fn number(shown: &str, name: &str) -> Option<u64> {
    let word = shown.split_whitespace().find_map(|word| word.strip_prefix(name));
    word.and_then(|word| word.split(',').next()?.parse().ok())
}

fn options_kept(kind: Kind) {
    inside(move || {
        let (tell, told) = mpsc::sync_channel(8);
        let app = ByCookie { listener: None, open: Vec::new(), tell };
        let offload = kind.usual_offload();
        let Some(bench) = Bench::with(kind, offload, None, vec![Box::new(app)]) else { return };
        for Ends { ours, .. } in ends() {
            let to = SocketAddr::new(ours, PORT);
            let mut stream = TcpStream::connect(to).unwrap();
            say(&mut stream);
            let said = told.recv_timeout(PATIENCE).unwrap();
            assert_eq!((said.by, said.sack, said.timestamps), (ProvenBy::Cookie, true, true));
            let Some(shown) = run("ss", &format!("-t -i -o -n -H dst {to}"), b"") else { return };
            let words = shown.text.split_whitespace().collect::<Vec<_>>();
            assert!(words.contains(&"ts") && words.contains(&"sack"), "{}", shown.text);
            // Ours, then the kernel's own, which is what we took its window by.
            let scales = words.iter().find_map(|word| word.strip_prefix("wscale:")).unwrap();
            let (_, its) = scales.split_once(',').unwrap();
            assert_eq!(said.window_scale, its.parse().ok(), "{}", shown.text);
            // A server that had forgotten its own scale would seem to have 128 times its real
            // window.
            let most = floodwall_base::limits::TCP_RECEIVE_BYTES as u64;
            let window = number(&shown.text, "snd_wnd:");
            assert!(window.is_none_or(|window| (1000..=most).contains(&window)), "{}", shown.text);
        }
        bench.running.stop().outcome.expect("it was asked to end");
    });
}

#[test]
fn a_cookie_keeps_window_scale_sack_and_timestamps_of_linux_over_tap() {
    options_kept(Kind::Tap);
}

#[test]
fn a_cookie_keeps_window_scale_sack_and_timestamps_of_linux_over_tun() {
    options_kept(Kind::Tun);
}

#[test]
fn a_cookie_keeps_window_scale_sack_and_timestamps_of_linux_over_a_packet_socket() {
    options_kept(Kind::Packet);
}

/// How long a client waits for its line: what an instance needs to start, and then the client's
/// next retransmission, at most that long again.
const ECHOED_WITHIN: Duration = Duration::from_secs(60);

/// Sends a line and receives it back.
fn say(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(ECHOED_WITHIN)).unwrap();
    stream.write_all(LINE).unwrap();
    let mut room = [0; LINE.len()];
    stream.read_exact(&mut room).unwrap();
    assert_eq!(room, LINE);
}

/// A file of keys, with its permissions.
fn write_keys(path: &str, bytes: &[u8], mode: u32) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const KEYS: &[u8; 32] = b"2718281828459045235360287471352a";
const OTHER_KEYS: &[u8; 32] = b"3141592653589793238462643383279b";

/// Refused at the start, with what is wrong and what helps.
#[test]
fn a_file_of_keys_that_is_missing_short_or_open_to_all_is_refused_in_clear_words() {
    inside(|| {
        let (Some(binary), folder) = (floodwall(), Folder::new()) else { return };
        let path = folder.file("keys");
        let refused = |words: [&str; 2]| {
            let run_words = format!("run --device tap:fw0 --cookie-secret {path}");
            let said = run(binary.to_str().unwrap(), &run_words, b"").unwrap();
            assert_eq!(said.status.code(), Some(1), "{}", said.complaint);
            for word in words {
                assert!(said.complaint.contains(word), "{word}: {}", said.complaint);
            }
            assert!(said.complaint.contains(&path), "{}", said.complaint);
        };
        refused(["cannot be read", "32 or more random bytes"]);
        write_keys(&path, &KEYS[..31], 0o600);
        refused(["31 bytes", "needs 32 or more"]);
        write_keys(&path, KEYS, 0o644);
        refused(["open to all users (mode 0644)", "chmod"]);
    });
}

/// How long a change of the file takes to be seen: it is looked at four times a second.
const SEEN_WITHIN: Duration = Duration::from_millis(700);

/// A file that goes bad in mid-run is complained of once each time, the old keys stay, and clients
/// connect; one that is good again is taken.
#[test]
fn a_file_of_keys_that_changes_in_mid_run_is_told_of_and_clients_connect_throughout() {
    inside(|| {
        let folder = Folder::new();
        let path = folder.file("keys");
        write_keys(&path, KEYS, 0o600);
        let flags = format!("--cookie-secret {path}");
        let Some(stand) = Stand::new(Server::Packet, &flags) else { return };
        let call = || {
            for four in [true, false] {
                stand.clients.inside(|| say(&mut TcpStream::connect(service(four)).unwrap()));
            }
        };
        let change = |what: &dyn Fn()| {
            what();
            pause(SEEN_WITHIN);
            call();
        };
        change(&|| write_keys(&path, &OTHER_KEYS[..9], 0o600));
        change(&|| write_keys(&path, OTHER_KEYS, 0o666));
        change(&|| fs::remove_file(&path).unwrap());
        change(&|| write_keys(&path, OTHER_KEYS, 0o600));
        let said = stand.end();
        let count = |word: &str| said.matches(word).count();
        assert_eq!(count("9 bytes and needs 32"), 1, "{said}");
        assert_eq!(count("open to all users (mode 0666)"), 1, "{said}");
        assert_eq!(count("cannot be read"), 1, "{said}");
        assert_eq!(count("The old keys stay in force"), 3, "{said}");
        assert_eq!(count("another cookie secret is in force"), 1, "{said}");
    });
}

/// A SYN is answered by one instance, the client's ACK and its line reach the next one, which has
/// no state of it but the keys: by file, or by a file of the same bytes, as another instance has
/// it.
#[test]
fn a_restarted_instance_with_the_same_keys_takes_over_handshakes_under_way() {
    inside(|| {
        let folder = Folder::new();
        let (path, sister) = (folder.file("keys"), folder.file("sisters-keys"));
        write_keys(&path, KEYS, 0o600);
        write_keys(&sister, KEYS, 0o640);
        let Some(mut stand) = Stand::new(Server::Packet, &format!("--cookie-secret {path}")) else {
            return;
        };
        for (four, keys) in [(true, &sister), (false, &path)] {
            // The client's link address is known before, so that its answers about it do not wait
            // ahead of its ACK.
            let calls = stand.clients.pace_by(100_000, "64k");
            stand.clients.inside(|| say(&mut TcpStream::connect(service(four)).unwrap()));
            // From now on one packet a second: the SYN leaves at once, the ACK waits.
            if !calls || !stand.clients.pace_by(1, "1600") {
                return skip("`tc` is missing or cannot hold a client to its pace");
            }
            let mut stream = stand.clients.inside(|| TcpStream::connect(service(four)).unwrap());
            // SIGKILL: it closes no connection.
            stand.ours.take().unwrap().process.kill();
            let flags = format!("--cookie-secret {keys}");
            let next = stand.server.inside(|| start(Server::Packet, &flags)).unwrap();
            say(&mut stream);
            assert_eq!((next.listener("cookies_valid"), next.listener("cache_hits")), (1, 0));
            stand.ours = Some(next);
        }
        let _ = stand.end();
    });
}
