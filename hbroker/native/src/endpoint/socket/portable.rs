//! One datagram in each system call.

use std::io;
use std::net::UdpSocket;

use super::{Arrivals, Arrived, SLOT_BYTES, SLOT_STRIDE};
use crate::endpoint::traffic::{Counters, Outgoing};

pub fn receive(socket: &UdpSocket, arrivals: &mut Arrivals, _: &Counters) -> io::Result<()> {
    for slot in arrivals.slots.chunks_mut(SLOT_STRIDE).take(arrivals.width) {
        match socket.recv_from(&mut slot[..SLOT_BYTES]) {
            Ok((length, source)) => {
                arrivals.messages.push(Arrived {
                    source,
                    length,
                    segment: length.max(1),
                });
            }
            Err(_) if !arrivals.messages.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
