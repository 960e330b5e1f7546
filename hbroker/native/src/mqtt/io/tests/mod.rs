//! A server that echoes, over real sockets: what breaks, and whom it hurts.

mod closing;
mod echo;
mod inline_run;
mod layers;
mod limits;
mod pressure;
mod websocket;
