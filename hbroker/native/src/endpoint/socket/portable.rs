//! Receives and sends one datagram in each system call.

use std::io;
use std::net::UdpSocket;

use super::arrivals::{Arrivals, SLOT_BYTES};
use crate::endpoint::traffic::{Counters, Outgoing};

/// Receives into at most `width` of the free slots. Returns how many were filled.
pub fn receive(socket: &UdpSocket, arrivals: &mut Arrivals, width: usize, _: &Counters) -> io::Result<usize> {
    for taken in 0..width {
        let Some(slot) = arrivals.free.last_mut() else {
            return Ok(taken);
        };
        match socket.recv_from(&mut slot[..SLOT_BYTES]) {
            Ok((length, source)) => arrivals.push(source, length, length),
            Err(_) if taken > 0 => return Ok(taken),
            Err(error) => return Err(error),
        }
    }
    Ok(width)
}

pub fn send(socket: &UdpSocket, bytes: &[u8], messages: &[Outgoing]) -> io::Result<usize> {
    for (sent, message) in messages.iter().enumerate() {
        match socket.send_to(&bytes[message.range.clone()], message.destination) {
            Ok(_) => {}
            Err(error) if sent == 0 => return Err(error),
            Err(_) => return Ok(sent),
        }
    }
    Ok(messages.len())
}
