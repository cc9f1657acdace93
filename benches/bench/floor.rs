//! What the same work costs without delta.

use crate::figures::{Sample, often};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// Spawning and waiting for a command.
pub fn spawn(times: usize, argv: &[&str]) -> Sample {
    often(times, || {
        let status = Command::new(argv[0])
            .args(&argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("a program").success());
    })
}

/// Appending so many bytes to a file and making them durable.
pub fn sync(dir: &Path, bytes: usize) -> Sample {
    let mut file = File::create(dir.join("synced")).expect("a file");
    let line = vec![b'x'; bytes];
    often(50, || {
        file.write_all(&line).expect("a write");
        file.sync_data().expect("a sync");
    })
}

/// An exchange over a loopback connection: so many bytes there, 300 back.
pub fn exchange(bytes: usize) -> Sample {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut client = TcpStream::connect(address).expect("a socket");
    let (mut server, _) = listener.accept().expect("a socket");
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        let mut left = bytes;
        while let Ok(n) = server.read(&mut buffer[..left.min(1 << 20)]) {
            left -= n;
            if n == 0 {
                return;
            }
            if left == 0 {
                left = bytes;
                server.write_all(&[b'x'; 300]).ok();
            }
        }
    });
    let (there, mut back) = (vec![b'x'; bytes], [0; 300]);
    often(if bytes > 100_000 { 50 } else { 300 }, || {
        client.write_all(&there).expect("a write");
        client.read_exact(&mut back).expect("a read");
    })
}
