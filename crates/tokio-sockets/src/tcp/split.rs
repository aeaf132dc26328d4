//! A stream in two halves: borrowed ones, and owned ones for different tasks.
//!
//! Each half has the stream's calls by `AsRef`; reading and writing are independent. Invariant: the
//! drop of an owned writing half, and only that, closes our side (FIN) while the reading half
//! exists.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::TcpStream;

/// The reading half of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// The writing half of a borrowed stream.
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

/// The reading half of a stream.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The writing half of a stream. Its drop closes our side (FIN).
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    closes: bool,
}

/// Two halves that are not of one stream, given back.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these halves are not of one stream")
    }
}

impl Error for ReuniteError {}

pub(super) fn split(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn split_owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, closes: true })
}

/// The whole stream of two owned halves.
fn whole(read: OwnedReadHalf, mut write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
    if !Arc::ptr_eq(&read.0, &write.stream) {
        return Err(ReuniteError(read, write));
    }
    write.closes = false;
    drop(write);
    // There are two halves and no more.
    Arc::try_unwrap(read.0).map_err(|stream| {
        let write = OwnedWriteHalf { stream: Arc::clone(&stream), closes: true };
        ReuniteError(OwnedReadHalf(stream), write)
    })
}

impl OwnedReadHalf {
    /// Puts both halves together again.
    ///
    /// # Errors
    /// They are not of one stream.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        whole(self, other)
    }
}

impl OwnedWriteHalf {
    /// Puts both halves together again.
    ///
    /// # Errors
    /// They are not of one stream.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        whole(other, self)
    }

    /// Drops the half without closing our side: the drop of the reading half decides how the
    /// connection ends.
    pub fn forget(mut self) {
        self.closes = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.closes {
            self.stream.shut();
        }
    }
}

macro_rules! halves {
    ($($half:ty => |$of:ident| $stream:expr;)*) => { $(
        impl AsRef<TcpStream> for $half {
            fn as_ref(&self) -> &TcpStream {
                let $of = self;
                $stream
            }
        }

        impl std::ops::Deref for $half {
            type Target = TcpStream;

            fn deref(&self) -> &TcpStream {
                self.as_ref()
            }
        }
    )* };
}

halves! {
    ReadHalf<'_> => |half| half.0;
    WriteHalf<'_> => |half| half.0;
    OwnedReadHalf => |half| &half.0;
    OwnedWriteHalf => |half| &half.stream;
}

macro_rules! reads {
    ($($half:ty),*) => { $(
        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.as_ref().get_ref().as_ref().poll_read_shared(cx, buf)
            }
        }
    )* };
}

macro_rules! writes {
    ($($half:ty),*) => { $(
        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.as_ref().get_ref().as_ref().poll_write_shared(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.as_ref().get_ref().as_ref().poll_write_shared(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.as_ref().get_ref().as_ref().shut();
                Poll::Ready(Ok(()))
            }
        }
    )* };
}

reads!(ReadHalf<'_>, OwnedReadHalf);
writes!(WriteHalf<'_>, OwnedWriteHalf);
