//! What neighbour discovery messages do, and what our own look like.
