//! One core's host and router as an engine.
