//! UDP sockets: demultiplexing, intake, output.
