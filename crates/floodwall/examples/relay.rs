//! A relay as in VPN clients: connections and datagrams to any destination through a TUN go to a
//! SOCKS5 proxy, with their destination. Addresses of both families may be given, with a comma:
//! `relay tun:fw0 192.0.2.1/24 127.0.0.1:1080`, then `ip addr add 192.0.2.2/24 dev fw0` and `ip
//! route add 198.51.100.0/24 dev fw0`: packets to those addresses arrive at the proxy, and replies
//! have those addresses as their source.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use floodwall::net::{Network, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream as Outside, UdpSocket as OutsideUdp};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

/// Maximum senders of datagrams that are relayed at a time; beyond it new senders are not.
const SENDERS: usize = 1024;
/// Datagrams of one of them that may wait; the next ones are lost.
const WAITING: usize = 64;
/// Time after which a sender without traffic in either direction is removed.
const SILENCE: Duration = Duration::from_secs(60);
/// Proxy requests (RFC 1928 section 4).
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

/// A datagram, and where it wanted to go.
type Outbound = (Vec<u8>, SocketAddr);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or("tun:fw0".to_owned());
    let address = args.next().unwrap_or("192.0.2.1/24".to_owned());
    let proxy = args.next().unwrap_or("127.0.0.1:1080".to_owned());
    let builder = Network::builder().device(&device).any_destination(true);
    let builder = address.split(',').fold(builder, |builder, address| builder.address(address));
    let network = builder.start().await?;
    let listener = TcpListener::bind_every(&network).await?;
    let socket = Arc::new(UdpSocket::bind_every(&network).await?);
    tokio::try_join!(connections(listener, &proxy), datagrams(socket, &proxy))?;
    Ok(())
}

async fn connections(listener: TcpListener, proxy: &str) -> Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let proxy = proxy.to_owned();
        tokio::spawn(async move {
            if let Err(error) = relay(stream, &proxy).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Carries bytes both ways until both sides have no more.
async fn relay(mut inside: TcpStream, proxy: &str) -> Result<()> {
    let mut outside = Outside::connect(proxy).await?;
    ask(&mut outside, CONNECT, inside.local_addr()?).await?;
    copy_bidirectional(&mut inside, &mut outside).await?;
    Ok(())
}

/// Gives each sender's datagrams to a task of its own.
async fn datagrams(socket: Arc<UdpSocket>, proxy: &str) -> Result<()> {
    let mut senders: HashMap<SocketAddr, Sender<Outbound>> = HashMap::new();
    let mut room = vec![0; 65_535];
    loop {
        let received = socket.receive(&mut room).await?;
        let datagram = (room[..received.len].to_vec(), received.to);
        if senders.get(&received.from).is_none_or(Sender::is_closed) {
            senders.retain(|_, sender| !sender.is_closed());
            if senders.len() == SENDERS {
                continue;
            }
            let (sender, waiting) = channel(WAITING);
            senders.insert(received.from, sender);
            let (socket, proxy, peer) = (Arc::clone(&socket), proxy.to_owned(), received.from);
            tokio::spawn(async move {
                if let Err(error) = associate(&socket, peer, waiting, &proxy).await {
                    eprintln!("{peer}: {error}");
                }
            });
        }
        // What there is no room for is lost: they are datagrams.
        let _ = senders.get(&received.from).map(|sender| sender.try_send(datagram));
    }
}

/// Carries one sender's datagrams both ways (RFC 1928 section 7) until it has been silent.
async fn associate(
    inside: &UdpSocket,
    peer: SocketAddr,
    mut waiting: Receiver<Outbound>,
    proxy: &str,
) -> Result<()> {
    let mut control = Outside::connect(proxy).await?;
    let mut relay = ask(&mut control, UDP_ASSOCIATE, ([0; 4], 0).into()).await?;
    if relay.ip().is_unspecified() {
        relay.set_ip(control.peer_addr()?.ip());
    }
    let outside = OutsideUdp::bind(SocketAddr::new(control.local_addr()?.ip(), 0)).await?;
    outside.connect(relay).await?;
    let (mut room, mut end) = (vec![0; 65_535], [0]);
    loop {
        tokio::select! {
            datagram = waiting.recv() => {
                let Some((payload, to)) = datagram else { return Ok(()) };
                let mut out = vec![0; 3];
                write_end(&mut out, to);
                out.extend(payload);
                outside.send(&out).await?;
            }
            len = outside.recv(&mut room) => {
                let bytes = &room[..len?];
                if let Some((from, payload)) = bytes.get(3..).and_then(read_end) {
                    inside.send_from(payload, from, peer).await?;
                }
            }
            // The association lasts as long as this connection.
            _ = control.read(&mut end) => return Err(Error::other("the proxy has ended it")),
            () = sleep(SILENCE) => return Ok(()),
        }
    }
}

/// Sends a request to a SOCKS5 proxy (RFC 1928), without authentication; returns its address.
async fn ask(proxy: &mut Outside, what: u8, to: SocketAddr) -> Result<SocketAddr> {
    let mut request = vec![5, what, 0];
    write_end(&mut request, to);
    proxy.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    proxy.read_exact(&mut method).await?;
    if method != [5, 0] {
        return Err(Error::other("the proxy requires authentication"));
    }
    proxy.write_all(&request).await?;
    let mut answer = [0; 4];
    proxy.read_exact(&mut answer).await?;
    if answer[1] != 0 {
        return Err(Error::other(format!("the proxy refuses {to}: {}", answer[1])));
    }
    let mut bound = vec![answer[3]; if answer[3] == 4 { 19 } else { 7 }];
    proxy.read_exact(&mut bound[1..]).await?;
    read_end(&bound).map(|(end, _)| end).ok_or_else(|| Error::other("the proxy gave no address"))
}

/// Writes an address and port as SOCKS5 does. IPv4 comes mapped on a dual-stack socket.
fn write_end(out: &mut Vec<u8>, end: SocketAddr) {
    match end.ip().to_canonical() {
        IpAddr::V4(ip) => out.extend([&[1][..], &ip.octets()].concat()),
        IpAddr::V6(ip) => out.extend([&[4][..], &ip.octets()].concat()),
    }
    out.extend(end.port().to_be_bytes());
}

/// The same, read; and what is behind. `None` where it is a name, or cut.
fn read_end(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, rest): (IpAddr, _) = match bytes.split_first()? {
        (1, rest) => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*ip).into(), rest)
        }
        (4, rest) => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*ip).into(), rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some((SocketAddr::new(ip, u16::from_be_bytes(*port)), rest))
}
