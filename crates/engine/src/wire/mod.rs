//! PostgreSQL protocol 3.0 as bytes in and bytes out; no sockets here.
