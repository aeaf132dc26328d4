//! Packet generator and counter as an engine.
