//! Frames as any program could send them.

use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;

use farlock_fabric::EndpointId;

/// A frame of this body, as it goes over the wire.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

pub(crate) fn hello(region: &str) -> Vec<u8> {
    hello_from(region, own_home())
}

/// From a client of this home, which says no port: it comes by a tunnel.
pub(crate) fn hello_from(region: &str, home: u128) -> Vec<u8> {
    hello_by(region, home, 0)
}

/// From a client of this home, which came from this port.
pub(crate) fn hello_by(region: &str, home: u128, port: u16) -> Vec<u8> {
    let (length, home) = ((region.len() as u16).to_le_bytes(), home.to_le_bytes());
    let (name, port) = (region.as_bytes(), port.to_le_bytes());
    let body = [&[1][..], b"farlock\x01", &[11, 0], &length, name, &home, &port];
    framed(&body.concat())
}

/// The boot of this kernel, and the namespaces of this process.
pub(crate) fn own_home() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap();
    let namespace = |path: &str| std::fs::metadata(path).map_or(0, |file| u128::from(file.ino()));
    boot ^ namespace("/proc/self/ns/pid") ^ namespace("/proc/self/ns/time") << 64
}

/// A new lane by this number, of no process of no home, without a label.
pub(crate) fn attach(lane: u32) -> Vec<u8> {
    attach_as(0, lane)
}

pub(crate) fn attach_as(pid: u32, lane: u32) -> Vec<u8> {
    framed(
        &[&[2][..], &lane.to_le_bytes(), &pid.to_le_bytes(), &[0; 8], &[0; 10], &[0; 2]].concat(),
    )
}

/// The endpoint of a lane that was asked for: other frames come before that.
pub(crate) fn attached(stream: &mut TcpStream) -> EndpointId {
    let frame = std::iter::repeat_with(|| read_frame(stream)).find(|frame| frame[0] == 3).unwrap();
    let half = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
    EndpointId { index: half(5), incarnation: half(7) }
}

pub(crate) fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    frame
}
