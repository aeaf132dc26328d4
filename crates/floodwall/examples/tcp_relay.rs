//! A relay as VPN clients have it: whatever connects to anywhere through a TUN goes to a SOCKS5
//! proxy, which is told where it wanted to go. Addresses of both families may be given, with a
//! comma: `tcp_relay tun:fw0 192.0.2.1/24 127.0.0.1:1080`, then `ip addr add 192.0.2.2/24 dev fw0`
//! and `ip route add 198.51.100.0/24 dev fw0`: connections to those addresses arrive at the proxy.

use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr};

use floodwall::net::{Network, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream as Outside;

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
    loop {
        let (stream, peer) = listener.accept().await?;
        let proxy = proxy.clone();
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
    ask(&mut outside, inside.local_addr()?).await?;
    copy_bidirectional(&mut inside, &mut outside).await?;
    Ok(())
}

/// Asks a SOCKS5 proxy for a connection (RFC 1928), without authentication.
async fn ask(proxy: &mut Outside, to: SocketAddr) -> Result<()> {
    let mut request = vec![5, 1, 0];
    // The listener hears both families: IPv4 comes mapped.
    match to.ip().to_canonical() {
        IpAddr::V4(ip) => request.extend([&[1][..], &ip.octets()].concat()),
        IpAddr::V6(ip) => request.extend([&[4][..], &ip.octets()].concat()),
    }
    request.extend(to.port().to_be_bytes());
    proxy.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    proxy.read_exact(&mut method).await?;
    if method != [5, 0] {
        return Err(Error::other("the proxy wants to know who we are"));
    }
    proxy.write_all(&request).await?;
    let mut answer = [0; 4];
    proxy.read_exact(&mut answer).await?;
    if answer[1] != 0 {
        return Err(Error::other(format!("the proxy refuses {to}: {}", answer[1])));
    }
    let mut bound = vec![0; if answer[3] == 4 { 18 } else { 6 }];
    proxy.read_exact(&mut bound).await?;
    Ok(())
}
