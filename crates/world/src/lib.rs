//! A simulated world: engines, links, one clock, one seed.
