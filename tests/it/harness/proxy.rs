//! A proxy on loopback that leads every connection to one server, and keeps what it was asked for.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Speaks HTTP and SOCKS5, whichever a client begins with.
pub struct ProxyServer {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

/// How a proxy treats its clients.
#[derive(Clone, Copy, Default)]
pub struct Manners {
    /// The answer to everything over HTTP in place of a connection.
    pub status: Option<u16>,
    /// The code of the reply over SOCKS5; 0: a connection.
    pub code: u8,
    /// What SOCKS5 clients have to give, as `USER:PASSWORD`.
    pub login: Option<&'static str>,
}

impl ProxyServer {
    pub fn to(server: SocketAddr, manners: Manners) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A client that goes away is the end of its connection.
                thread::spawn(move || serve(client, server, manners, &kept).ok());
            }
        });
        Self { port, asked }
    }

    /// `HOST:PORT`.
    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// First lines of HTTP, with the login after a blank, and `socks HOST:PORT LOGIN`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    manners: Manners,
    kept: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut first = [0];
    client.peek(&mut first)?;
    let keep = |line: String| kept.lock().unwrap().push(line);
    let mut opening = Vec::new();
    if first[0] == 5 {
        let (place, login) = greet(&mut client, manners.login)?;
        keep(format!("socks {place} {login}").trim_end().to_owned());
        client.write_all(&[5, manners.code, 0, 1, 0, 0, 0, 0, 0, 0])?;
        if manners.code > 0 {
            return Ok(());
        }
    } else {
        let head = read_head(&mut client)?;
        let (line, rest) = head.split_once("\r\n").unwrap();
        let login = rest
            .lines()
            .find_map(|line| line.strip_prefix("Proxy-Authorization: "));
        keep(
            format!("{line} {}", login.unwrap_or_default())
                .trim_end()
                .to_owned(),
        );
        if let Some(status) = manners.status {
            let answer =
                format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return client.write_all(answer.as_bytes());
        }
        if line.starts_with("CONNECT ") {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        } else {
            // In origin form, and so that the next request is another connection.
            let words: Vec<&str> = line.split(' ').collect();
            let path = words[1].splitn(4, '/').nth(3).unwrap();
            opening = format!("{} /{path} HTTP/1.1\r\n{rest}", words[0]).into_bytes();
        }
    }
    let mut server = TcpStream::connect(server)?;
    server.write_all(&opening)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to).ok());
    let copied = std::io::copy(&mut server, &mut client);
    // The other thread holds the connection, too.
    client.shutdown(Shutdown::Both)?;
    copied.map(|_| ())
}

fn read_head(client: &mut TcpStream) -> std::io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn read_bytes(client: &mut TcpStream, length: u8) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length.into()];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The place that a client of SOCKS5 asks for, and its login.
fn greet(client: &mut TcpStream, wanted: Option<&str>) -> std::io::Result<(String, String)> {
    let count = read_bytes(client, 2)?[1];
    let offered = read_bytes(client, count)?;
    let method = match wanted {
        None => 0,
        Some(_) if offered.contains(&2) => 2,
        Some(_) => 0xff,
    };
    client.write_all(&[5, method])?;
    let mut login = String::new();
    if method == 2 {
        let user = read_bytes(client, 2)?[1];
        let user = read_bytes(client, user)?;
        let password = read_bytes(client, 1)?[0];
        let password = read_bytes(client, password)?;
        login = [
            String::from_utf8_lossy(&user),
            String::from_utf8_lossy(&password),
        ]
        .join(":");
        client.write_all(&[1, u8::from(Some(&*login) != wanted)])?;
    }
    let host = match read_bytes(client, 4)?[3] {
        1 => {
            let bytes: [u8; 4] = read_bytes(client, 4)?.try_into().unwrap();
            Ipv4Addr::from(bytes).to_string()
        }
        3 => {
            let length = read_bytes(client, 1)?[0];
            String::from_utf8_lossy(&read_bytes(client, length)?).into_owned()
        }
        other => panic!("an address of kind {other}"),
    };
    let port = read_bytes(client, 2)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    Ok((format!("{host}:{port}"), login))
}
