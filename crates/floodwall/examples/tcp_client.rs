//! Fetches a page over a host of its own: `tcp_client tap:fw0 192.0.2.2/24 192.0.2.1:80 /`.

use std::io::Write as _;

use floodwall::net::{Network, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |usual: &str| args.next().unwrap_or(usual.to_owned());
    let (device, address) = (next("tap:fw0"), next("192.0.2.2/24"));
    let (server, path) = (next("192.0.2.1:80"), next("/"));
    let network = Network::builder().device(&device).address(&address).start().await?;
    let mut stream = TcpStream::connect(&network, server.as_str()).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let (mut out, mut buffer) = (std::io::stdout().lock(), vec![0; 65_536]);
    while let len @ 1.. = stream.read(&mut buffer).await? {
        out.write_all(&buffer[..len])?;
    }
    drop(stream);
    network.shutdown().await?;
    Ok(())
}
