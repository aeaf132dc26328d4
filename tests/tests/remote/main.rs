//! Sockets of programs on other threads than the worker's: on real threads, by the loopback of one
//! host, and in simulation, between two hosts.

mod prices;
mod sim;
mod tcp;
mod threads;
mod worker;
