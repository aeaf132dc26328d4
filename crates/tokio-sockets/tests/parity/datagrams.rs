//! What both kinds of sockets must offer, with the same names and signatures.
//!
//! One list; the trait is written from it, and so are its implementations, which call the method
//! of the same name. Where a name or a signature drifts apart, this file does not compile.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use tokio::io::{Interest, ReadBuf, Ready};

/// Passes the list to another macro.
macro_rules! methods {
    ($then:ident $($first:tt)*) => {
        $then! { $($first)*
            async {
                connect(addr: SocketAddr) -> io::Result<()>,
                ready(interest: Interest) -> io::Result<Ready>,
                readable() -> io::Result<()>,
                writable() -> io::Result<()>,
                send(buf: &[u8]) -> io::Result<usize>,
                send_to(buf: &[u8], addr: SocketAddr) -> io::Result<usize>,
                recv(buf: &mut [u8]) -> io::Result<usize>,
                recv_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>,
                peek(buf: &mut [u8]) -> io::Result<usize>,
                peek_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>,
                peek_sender() -> io::Result<SocketAddr>,
            }
            plain {
                local_addr() -> io::Result<SocketAddr>,
                peer_addr() -> io::Result<SocketAddr>,
                try_send(buf: &[u8]) -> io::Result<usize>,
                try_send_to(buf: &[u8], addr: SocketAddr) -> io::Result<usize>,
                try_recv(buf: &mut [u8]) -> io::Result<usize>,
                try_recv_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>,
                try_peek(buf: &mut [u8]) -> io::Result<usize>,
                try_peek_from(buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>,
                try_peek_sender() -> io::Result<SocketAddr>,
                poll_send(cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>,
                poll_send_to(cx: &mut Context<'_>, buf: &[u8], addr: SocketAddr)
                    -> Poll<io::Result<usize>>,
                poll_send_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>,
                poll_recv(cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
                poll_recv_from(cx: &mut Context<'_>, buf: &mut ReadBuf<'_>)
                    -> Poll<io::Result<SocketAddr>>,
                poll_recv_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>,
                poll_peek(cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
                poll_peek_from(cx: &mut Context<'_>, buf: &mut ReadBuf<'_>)
                    -> Poll<io::Result<SocketAddr>>,
                poll_peek_sender(cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>>,
                take_error() -> io::Result<Option<io::Error>>,
                broadcast() -> io::Result<bool>,
                set_broadcast(on: bool) -> io::Result<()>,
                ttl() -> io::Result<u32>,
                set_ttl(ttl: u32) -> io::Result<()>,
                tos_v4() -> io::Result<u32>,
                set_tos_v4(tos: u32) -> io::Result<()>,
                tclass_v6() -> io::Result<u32>,
                set_tclass_v6(tclass: u32) -> io::Result<()>,
                multicast_loop_v4() -> io::Result<bool>,
                set_multicast_loop_v4(on: bool) -> io::Result<()>,
                multicast_ttl_v4() -> io::Result<u32>,
                set_multicast_ttl_v4(ttl: u32) -> io::Result<()>,
                multicast_loop_v6() -> io::Result<bool>,
                set_multicast_loop_v6(on: bool) -> io::Result<()>,
                join_multicast_v4(group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()>,
                leave_multicast_v4(group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()>,
                join_multicast_v6(group: &Ipv6Addr, interface: u32) -> io::Result<()>,
                leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> io::Result<()>,
            }
        }
    };
}

macro_rules! declare {
    (
        async { $($name:ident($($arg:ident: $of:ty),*) -> $out:ty,)* }
        plain { $($plain:ident($($given:ident: $kind:ty),*) -> $gives:ty,)* }
    ) => {
        /// The operations of a datagram socket that both stacks have.
        pub(crate) trait Datagrams: Sized + Send + Sync + 'static {
            $(fn $name(&self $(, $arg: $of)*) -> impl Future<Output = $out> + Send;)*
            $(fn $plain(&self $(, $given: $kind)*) -> $gives;)*

            /// Tries `what` where the socket is thought ready.
            fn try_io<R>(
                &self,
                interest: Interest,
                what: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R>;
        }
    };
}

macro_rules! implement {
    (
        $socket:ty;
        async { $($name:ident($($arg:ident: $of:ty),*) -> $out:ty,)* }
        plain { $($plain:ident($($given:ident: $kind:ty),*) -> $gives:ty,)* }
    ) => {
        impl Datagrams for $socket {
            $(async fn $name(&self $(, $arg: $of)*) -> $out {
                <$socket>::$name(self $(, $arg)*).await
            })*
            $(fn $plain(&self $(, $given: $kind)*) -> $gives {
                <$socket>::$plain(self $(, $given)*)
            })*

            fn try_io<R>(
                &self,
                interest: Interest,
                what: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                <$socket>::try_io(self, interest, what)
            }
        }
    };
}

methods! { declare }
methods! { implement tokio::net::UdpSocket; }
methods! { implement floodwall_tokio_sockets::UdpSocket; }
