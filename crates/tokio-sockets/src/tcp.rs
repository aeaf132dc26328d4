//! TCP: tokio's listener and stream, over a Floodwall host.
//!
//! Same names, same signatures, the same kinds of errors; `tests/tcp` runs one body against both.
//! What is not tokio's: a socket is made on a [`Network`](crate::Network). Reading: `stream.rs`,
//! `listener.rs`, then `split.rs` and `socket.rs`.

mod listener;
mod socket;
mod split;
mod stream;

pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
