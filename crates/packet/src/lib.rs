//! Packet buffers of the Floodwall stack: pool, chunks, header access, and the Engine trait.
