//! A seccomp filter against what Landlock and namespaces do not cover: input injected into terminals, also through
//! inherited descriptors, limits set on other processes, and sockets that belong to no network namespace.
//!
//! Unaware of other restrictions.

#![allow(
    clippy::decimal_bitwise_operands,
    reason = "numbers of system calls are decimal in every table"
)]

use seccompiler::{apply_filter, sock_filter};

/// `AUDIT_ARCH_*` of `linux/audit.h`. A 64-bit process can use its machine's 32-bit interface, too.
const X86_64: u32 = 0xC000_003E;
const I386: u32 = 0x4000_0003;
const AARCH64: u32 = 0xC000_00B7;
const ARM: u32 = 0x4000_0028;
const RISCV64: u32 = 0xC000_00F3;
const LOONGARCH64: u32 = 0xC000_0102;
const PPC64LE: u32 = 0xC000_0015;
/// Marks the numbers of the third interface of x86-64.
const X32: u32 = 0x4000_0000;

/// The interfaces in the order of a rule's numbers.
const ARCHES: [u32; 8] = [
    X86_64,
    X86_64,
    I386,
    AARCH64,
    ARM,
    RISCV64,
    LOONGARCH64,
    PPC64LE,
];
/// No system call has this number.
const NONE: u32 = u32::MAX;

/// A system call that is refused depending on one of its arguments.
struct ArgumentRule {
    /// The call's number in each interface.
    numbers: [u32; 8],
    argument: u32,
    values: &'static [u32],
    /// True if the values are refused, false if only they are allowed.
    refuses_values: bool,
    unless: Permission,
}

/// A permission that leaves a rule out.
enum Permission {
    Never,
    Network,
    /// Sockets with a path lead out of every network namespace.
    UnixSockets,
}

const SOCKET: [u32; 8] = [41, X32 | 41, 359, 198, 281, 198, 198, 326];
const SOCKETPAIR: [u32; 8] = [53, X32 | 53, 360, 199, 288, 199, 199, 333];
/// An older way to all calls for sockets, whose arguments are in memory.
const SOCKETCALL: [u32; 8] = [NONE, NONE, 102, NONE, NONE, NONE, NONE, 102];

const RULES: [ArgumentRule; 8] = [
    // ioctl: TIOCSTI, and TIOCLINUX, which can paste. The kernel ignores the upper half of the request.
    ArgumentRule {
        numbers: [16, X32 | 514, 54, 29, 54, 29, 29, 54],
        argument: 1,
        values: &[0x5412, 0x541C],
        refuses_values: true,
        unless: Permission::Never,
    },
    // prlimit64 of another process, which could be killed by a limit.
    ArgumentRule {
        numbers: [302, X32 | 302, 340, 261, 369, 261, 261, 325],
        argument: 0,
        values: &[0],
        refuses_values: false,
        unless: Permission::Never,
    },
    // All but AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK, such as AF_VSOCK, which reaches the host of a virtual machine.
    ArgumentRule {
        numbers: SOCKET,
        argument: 0,
        values: &[1, 2, 10, 16],
        refuses_values: false,
        unless: Permission::Network,
    },
    // SYS_SOCKET.
    ArgumentRule {
        numbers: SOCKETCALL,
        argument: 0,
        values: &[1],
        refuses_values: true,
        unless: Permission::Network,
    },
    // io_uring_setup: a ring makes sockets without system calls.
    ArgumentRule {
        numbers: [425, X32 | 425, 425, 425, 425, 425, 425, 425],
        argument: 0,
        values: &[],
        refuses_values: false,
        unless: Permission::Network,
    },
    ArgumentRule {
        numbers: SOCKET,
        argument: 0,
        values: &[1],
        refuses_values: true,
        unless: Permission::UnixSockets,
    },
    // Pairs of datagram sockets, with each set of flags: unlike others, they can send to any address.
    ArgumentRule {
        numbers: SOCKETPAIR,
        argument: 1,
        values: &[2, 3, 0x802, 0x803, 0x8_0002, 0x8_0003, 0x8_0802, 0x8_0803],
        refuses_values: true,
        unless: Permission::UnixSockets,
    },
    // SYS_SOCKETPAIR.
    ArgumentRule {
        numbers: SOCKETCALL,
        argument: 0,
        values: &[8],
        refuses_values: true,
        unless: Permission::UnixSockets,
    },
];

impl ArgumentRule {
    /// Each interface that has the call, and its number there.
    fn calls(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = ARCHES.into_iter().zip(self.numbers);
        all.filter(|(_, number)| *number != NONE)
    }
}

/// Offsets in `struct seccomp_data` of `linux/seccomp.h`: the number, the interface, and the lower half of the first
/// argument.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Instructions of `linux/bpf_common.h` and results of `linux/seccomp.h`.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7FFF_0000;
const REFUSE: u32 = 0x0005_0000 | EPERM;
const EPERM: u32 = 1;

/// Irrevocably installs the filter for this process and its children. False if the kernel has no seccomp.
pub(crate) fn apply(has_network: bool, has_unix: bool) -> bool {
    apply_filter(&program(has_network, has_unix)).is_ok()
}

fn program(has_network: bool, has_unix: bool) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for rule in &RULES {
        let is_left_out = match rule.unless {
            Permission::Never => false,
            Permission::Network => has_network,
            Permission::UnixSockets => has_unix,
        };
        for (arch, number) in rule.calls().filter(|_| !is_left_out) {
            program.extend(check(rule, arch, number));
        }
    }
    program.push(instruction(RETURN, 0, 0, ALLOW));
    program
}

/// The instructions that refuse a system call, or go on after themselves.
fn check(rule: &ArgumentRule, arch: u32, number: u32) -> Vec<sock_filter> {
    let count = rule.values.len() as u8;
    let (refuse, skip) = (instruction(RETURN, 0, 0, REFUSE), |by| {
        instruction(JUMP, 0, 0, by)
    });
    let mut all = vec![
        instruction(LOAD, 0, 0, ARCH),
        instruction(JUMP_IF_EQUAL, 0, count + 5, arch),
        instruction(LOAD, 0, 0, NUMBER),
        instruction(JUMP_IF_EQUAL, 0, count + 3, number),
        instruction(LOAD, 0, 0, ARGUMENTS + 8 * rule.argument),
    ];
    for (value, left) in rule.values.iter().zip((1..=count).rev()) {
        all.push(instruction(JUMP_IF_EQUAL, left, 0, *value));
    }
    // What to do with other values, then with these.
    all.extend(if rule.refuses_values {
        [skip(1), refuse]
    } else {
        [refuse, skip(0)]
    });
    all
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the filter refuses a system call.
    fn refuses(has_network: bool, arch: u32, number: u32, arguments: [u64; 2]) -> bool {
        is_refused([has_network, true], arch, number, arguments)
    }

    fn is_refused(
        [has_network, has_unix]: [bool; 2],
        arch: u32,
        number: u32,
        arguments: [u64; 2],
    ) -> bool {
        let program = program(has_network, has_unix);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let instruction = &program[at];
            at += 1;
            match (instruction.code, instruction.k) {
                (LOAD, NUMBER) => loaded = number,
                (LOAD, ARCH) => loaded = arch,
                (LOAD, 16) => loaded = arguments[0] as u32,
                (LOAD, 24) => loaded = arguments[1] as u32,
                (JUMP, by) => at += by as usize,
                (JUMP_IF_EQUAL, k) if k == loaded => at += usize::from(instruction.jt),
                (JUMP_IF_EQUAL, _) => at += usize::from(instruction.jf),
                (RETURN, REFUSE) => return true,
                (RETURN, ALLOW) => return false,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn typing_into_a_terminal_is_refused_through_every_interface() {
        for (arch, number) in RULES[0].calls() {
            for request in [0x5412, 0x541C, 0x7_0000_5412, u64::MAX << 32 | 0x541C] {
                assert!(
                    refuses(true, arch, number, [0, request]),
                    "{arch:x} {request:x}"
                );
            }
            // TCGETS, TIOCSCTTY, TIOCSTI in the upper half.
            for request in [0x5401, 0x540E, 0x5412 << 32, 0] {
                assert!(
                    !refuses(false, arch, number, [0, request]),
                    "{arch:x} {request:x}"
                );
            }
        }
        assert!(!refuses(false, 0, 16, [0, 0x5412]));
    }

    #[test]
    fn only_a_process_itself_can_be_limited() {
        for (arch, number) in RULES[1].calls() {
            assert!(!refuses(false, arch, number, [0, 7]));
            assert!(refuses(true, arch, number, [1, 7]) && refuses(true, arch, number, [77, 0]));
        }
    }

    #[test]
    fn without_a_network_there_are_no_sockets_outside_its_namespace() {
        let (unix, inet, inet6, netlink, vsock) = (1, 2, 10, 16, 40);
        for (arch, number) in RULES[2].calls() {
            for family in [unix, inet, inet6, netlink] {
                assert!(!refuses(false, arch, number, [family, 1]));
            }
            for family in [0, vsock, 31, 38, u64::MAX] {
                assert!(refuses(false, arch, number, [family, 1]));
                assert!(!refuses(true, arch, number, [family, 1]));
            }
        }
        for (arch, number) in RULES[3].calls() {
            assert!(refuses(false, arch, number, [1, 0]) && !refuses(false, arch, number, [3, 0]));
        }
        for (arch, number) in RULES[4].calls() {
            assert!(refuses(false, arch, number, [4, 0]) && !refuses(true, arch, number, [4, 0]));
        }
    }

    #[test]
    fn unix_sockets_are_pairs_of_streams_through_every_interface() {
        let (unix, inet, unix_in_64_bits) = (1, 2, 7 << 32 | 1);
        for (arch, number) in RULES[5].calls() {
            for family in [unix, unix_in_64_bits] {
                assert!(is_refused([false; 2], arch, number, [family, 1]));
                assert!(!is_refused([false, true], arch, number, [family, 1]));
            }
            assert!(!is_refused([false; 2], arch, number, [inet, 1]));
        }
        for (arch, number) in RULES[6].calls() {
            let (stream, datagram, raw, seqpacket) = (1, 2, 3, 5);
            for flags in [0, 0x800, 0x8_0000, 0x8_0800] {
                for kind in [stream, seqpacket] {
                    assert!(!is_refused([false; 2], arch, number, [unix, kind | flags]));
                }
                for kind in [datagram, raw] {
                    assert!(is_refused([false; 2], arch, number, [unix, kind | flags]));
                    assert!(!refuses(false, arch, number, [unix, kind | flags]));
                }
            }
        }
        for (arch, number) in RULES[7].calls() {
            assert!(is_refused([false; 2], arch, number, [8, 0]));
            assert!(is_refused([false; 2], arch, number, [1, 0]));
            assert!(!is_refused([false; 2], arch, number, [3, 0]));
        }
    }
}
