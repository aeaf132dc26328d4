//! A TCP echo service on tokio, on a host of its own: `tcp_echo_tokio tap:fw0 192.0.2.1/24`.

use floodwall::net::{Network, TcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or("tap:fw0".to_owned());
    let address = args.next().unwrap_or("192.0.2.1/24".to_owned());
    let network = Network::builder().device(&device).address(&address).start().await?;
    let listener = TcpListener::bind(&network, "[::]:7001").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..len]).await.is_err() {
                    break;
                }
            }
        });
    }
}
