//! Floodwall's servers: an application in slices on the worker's core, and one on tokio.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_device::{Device, Tun, TunConfig};
use floodwall_dispatch::{Clock, Port, Shown, Stop, Worker, WorkerConfig, entropy};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_stack::{
    Application, Host, InterfaceConfig, LinkMedium, Sockets, StackConfig, StartError,
    accounts_needed,
};
use floodwall_tcp::{ConnectionId, ListenerId, RecvError, SendError, TcpSettings};
use floodwall_tokio_sockets::{Network, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clients;
use crate::talk::{Next, PIECE, Pages, Talk};

/// The server as an application of a host.
struct Web {
    pages: Pages,
    open: Option<(ListenerId, u32)>,
    talks: Vec<(Option<ConnectionId>, Talk)>,
    buffer: Vec<u8>,
    more: bool,
}

/// A connection, read and written for the length of a slice.
struct Stream<'a, 's> {
    sockets: &'a mut Sockets<'s>,
    id: ConnectionId,
}

impl Read for Stream<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.sockets.tcp_recv(self.id, out).map_err(|error| match error {
            RecvError::WouldBlock => ErrorKind::WouldBlock.into(),
            error => io::Error::other(error),
        })
    }
}

impl Write for Stream<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sockets.tcp_send(self.id, bytes).map_err(|error| match error {
            SendError::WouldBlock => ErrorKind::WouldBlock.into(),
            error => io::Error::other(error),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Web {
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) {
        if self.talks.len() <= id.index() {
            self.talks.resize(id.index() + 1, (None, Talk::default()));
        }
        let place = &mut self.talks[id.index()];
        if place.0 != Some(id) {
            *place = (Some(id), Talk::default());
        }
        let mut stream = Stream { sockets, id };
        if place.1.serve(&mut stream, &self.pages, &mut self.buffer, true) == Next::Close {
            place.0 = None;
            let _ = sockets.tcp_close(id);
        }
    }
}

impl Application for Web {
    fn name(&self) -> &str {
        "web"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any: SocketAddr = "[::]:80".parse().unwrap();
        let owner = sockets.tcp_owner()?;
        let settings = TcpSettings { nodelay: true, ..TcpSettings::default() };
        self.open = Some((sockets.tcp_listen(any, &settings, 4 * clients(), owner)?, owner));
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let Some((listener, owner)) = self.open else { return Units(0) };
        let mut spent = 0;
        self.more = true;
        while spent < budget.0 {
            let next = match sockets.tcp_accept(listener) {
                Ok(Some(id)) => Some(id),
                _ => sockets.tcp_event(owner).map(|(id, _)| id),
            };
            let Some(id) = next else {
                self.more = false;
                break;
            };
            self.serve(sockets, id);
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        self.more.then_some(Instant::ORIGIN)
    }
}

/// Serves in slices until it is killed; `offload`: with the virtio header.
pub(crate) fn in_slices(device: &str, addresses: &[String], offload: bool) {
    let config = TunConfig { vnet_header: offload, up: true, ..TunConfig::default() };
    let tun = Tun::open(device, &config).unwrap().remove(0);
    let interface = InterfaceConfig {
        name: device.to_owned(),
        medium: LinkMedium::Ip,
        mtu: tun.info().mtu,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    };
    let interfaces = vec![interface];
    let config = StackConfig { interfaces, tcp_connections_max: 1024, ..StackConfig::default() };
    let supers = if offload { 64 } else { 0 };
    let accounts = accounts_needed(&config);
    let pool = Pool::new(&PoolConfig { supers, accounts, ..PoolConfig::default() }).unwrap();
    let mut random = entropy::randomness().unwrap();
    let web = Web {
        pages: Pages::new(),
        open: None,
        talks: Vec::new(),
        buffer: vec![0; PIECE],
        more: false,
    };
    let now = Clock::new().now();
    let host = Host::new(&config, vec![Box::new(web)], &pool, &mut random, now).unwrap();
    let ports = vec![Port::new(IfIndex(1), Box::new(tun))];
    let worker = WorkerConfig::default();
    let mut worker = Worker::new(Shown::silent(host), pool, random, ports, worker).unwrap();
    println!("serving");
    worker.run(&Stop::new().unwrap()).unwrap();
}

/// The same on tokio: one task a connection, all on the thread of this call.
pub(crate) fn on_tokio(device: &str, addresses: &[String]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let network = Network::builder().device(&format!("tun:{device}"));
        let network = addresses.iter().fold(network, |network, addr| network.address(addr));
        let network = network.tcp(|tcp| tcp.nodelay = true).start().await.unwrap();
        let listener = TcpListener::bind(&network, "[::]:80").await.unwrap();
        let pages: &Pages = Box::leak(Box::new(Pages::new()));
        println!("serving");
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(converse(stream, pages));
        }
    });
}

async fn converse(mut stream: TcpStream, pages: &Pages) {
    let (mut talk, mut buffer) = (Talk::default(), vec![0; PIECE]);
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        let Some(page) = talk.hear(&buffer[..len]) else { continue };
        if stream.write_all(pages.answer(page)).await.is_err() || talk.closes() {
            return;
        }
    }
}
