//! Any program of operations on packets, against flat bytes.

use std::cell::RefCell;

use crate::packet_model::PacketModel;

thread_local! {
    static MODEL: RefCell<PacketModel> = RefCell::new(PacketModel::new());
}

/// Runs `data` as a program of [`PacketModel`]. The pool is made once a thread: each run must bring
/// everything home.
///
/// # Panics
/// Packet and model differ, or something is not home.
pub fn pulldown(data: &[u8]) {
    let program = data.get(..2048).unwrap_or(data);
    MODEL.with_borrow_mut(|model| model.run(program));
}
