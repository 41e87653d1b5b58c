//! The epoll loop, connections, and the clock that tests replace.
