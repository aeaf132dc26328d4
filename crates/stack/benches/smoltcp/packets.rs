//! smoltcp's packets: their memory is kept for the next ones.

use std::collections::VecDeque;

use smoltcp::phy::{RxToken, TxToken};

/// A packet, and where its memory goes once it is read.
pub(crate) struct Arrived<'a>(pub(crate) Vec<u8>, pub(crate) &'a mut Vec<Vec<u8>>);

/// Memory for a packet, and where it leaves.
pub(crate) struct Departing<'a>(pub(crate) Vec<u8>, pub(crate) &'a mut VecDeque<Vec<u8>>);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.0);
        self.1.push(self.0);
        result
    }
}

impl TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, fill: F) -> R {
        self.0.resize(len, 0);
        let result = fill(&mut self.0);
        self.1.push_back(self.0);
        result
    }
}
