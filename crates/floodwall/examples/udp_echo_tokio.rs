//! A UDP echo service on tokio, on a host of its own: `udp_echo_tokio tap:fw0 192.0.2.1/24`.

use floodwall::net::{Network, UdpSocket};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or("tap:fw0".to_owned());
    let address = args.next().unwrap_or("192.0.2.1/24".to_owned());
    let network = Network::builder().device(&device).address(&address).start().await?;
    let socket = UdpSocket::bind(&network, "[::]:7001").await?;
    let mut buffer = [0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await?;
        socket.send_to(&buffer[..len], from).await?;
    }
}
