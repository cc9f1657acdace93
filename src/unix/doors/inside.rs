//! The inner end of the doors, in a network namespace that has nothing yet: its loopback interface, and the listening
//! socket, which is passed to the process outside.
//!
//! Unaware of what listens there.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, listen, recv, recvmsg, send, sendmsg,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Connections that wait to be accepted, as far as the kernel allows.
const BACKLOG: i32 = 4096;

/// Opens the inner end in the network namespace of this process, in which it must be privileged, and hands it over.
/// Returns the port on 127.0.0.1.
pub(crate) fn open(keeper: &UnixStream) -> io::Result<u16> {
    raise_loopback()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS.into());
    }
    sendmsg(
        keeper,
        &[IoSlice::new(&[1])],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(port)
}

/// Receives the inner end; none if the other process has ended without it.
pub(super) fn receive(peer: &UnixStream) -> Option<TcpListener> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(peer, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next().map(TcpListener::from),
        _ => None,
    })
}

/// Sets `IFF_UP` on the first interface, which is the loopback one (rtnetlink(7)).
fn raise_loopback() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const FIRST: i32 = 1;
    const IFF_UP: u32 = 1;
    // A header, struct ifinfomsg, and in the answer struct nlmsgerr, whose first member is an error code.
    const LENGTH: u32 = 32;
    const ERROR: usize = 16;
    let mut request = Vec::with_capacity(LENGTH as usize);
    request.extend(LENGTH.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    request.extend([0; 12]);
    request.extend(FIRST.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    let flags = SocketFlags::CLOEXEC;
    // No protocol: NETLINK_ROUTE is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (read, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let code = answer[..read]
        .get(ERROR..ERROR + 4)
        .and_then(|it| Some(i32::from_ne_bytes(it.try_into().ok()?)));
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
