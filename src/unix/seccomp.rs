//! A seccomp filter that keeps a process from injecting input into terminals, also through inherited descriptors, which
//! Landlock does not check.
//!
//! Unaware of other restrictions.

use seccompiler::{apply_filter, sock_filter};

/// The number of `ioctl` in each system call interface, by `AUDIT_ARCH_*` of `linux/audit.h`. A 64-bit process can use
/// the 32-bit interface, too.
const IOCTL: [(u32, u32); 8] = [
    (0xC000_003E, 16),          // x86-64
    (0xC000_003E, 0x4000_0202), // x32: 514 and its bit
    (0x4000_0003, 54),          // i386
    (0xC000_00B7, 29),          // AArch64
    (0x4000_0028, 54),          // ARM
    (0xC000_00F3, 29),          // RISC-V, 64 bits
    (0xC000_0102, 29),          // LoongArch, 64 bits
    (0xC000_0015, 54),          // PowerPC, 64 bits, little-endian
];

/// `TIOCSTI`, and `TIOCLINUX`, which can paste.
const TYPING: [u32; 2] = [0x5412, 0x541C];

/// Offsets in `struct seccomp_data` of `linux/seccomp.h`: the call's number, its interface, and the lower half of its
/// second argument. The request of `ioctl` has 32 bits, and the kernel ignores the upper half.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const REQUEST: u32 = 24;

/// Instructions of `linux/bpf_common.h` and results of `linux/seccomp.h`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7FFF_0000;
const REFUSE: u32 = 0x0005_0000 | EPERM;
const EPERM: u32 = 1;

/// Irrevocably installs the filter for this process and its children. False if the kernel has no seccomp.
pub(crate) fn forbid_typing() -> bool {
    apply_filter(&program()).is_ok()
}

fn program() -> Vec<sock_filter> {
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let load = |offset| instruction(LOAD, 0, 0, offset);
    let mut all = Vec::new();
    for (at, (arch, number)) in IOCTL.iter().enumerate() {
        // The request is checked after the remaining pairs and an ALLOW.
        let left = 4 * (IOCTL.len() - at - 1) as u8;
        all.push(load(ARCH));
        all.push(instruction(JUMP_IF_EQUAL, 0, 2, *arch));
        all.push(load(NUMBER));
        all.push(instruction(JUMP_IF_EQUAL, left + 1, 0, *number));
    }
    all.push(instruction(RETURN, 0, 0, ALLOW));
    all.push(load(REQUEST));
    for (request, behind) in TYPING.iter().zip([2, 1]) {
        all.push(instruction(JUMP_IF_EQUAL, behind, 0, *request));
    }
    all.push(instruction(RETURN, 0, 0, ALLOW));
    all.push(instruction(RETURN, 0, 0, REFUSE));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter's result for a system call with this second argument.
    fn verdict(arch: u32, number: u32, request: u64) -> u32 {
        let program = program();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let instruction = &program[at];
            at += 1;
            match (instruction.code, instruction.k) {
                (LOAD, NUMBER) => loaded = number,
                (LOAD, ARCH) => loaded = arch,
                (LOAD, REQUEST) => loaded = request as u32,
                (JUMP_IF_EQUAL, k) if k == loaded => at += usize::from(instruction.jt),
                (JUMP_IF_EQUAL, _) => at += usize::from(instruction.jf),
                (RETURN, verdict) => return verdict,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn typing_is_refused_through_every_interface() {
        for (arch, number) in IOCTL {
            for request in [0x5412, 0x541C, 0x7_0000_5412, u64::MAX << 32 | 0x541C] {
                assert_eq!(
                    verdict(arch, number, request),
                    REFUSE,
                    "{arch:x} {request:x}"
                );
            }
            // TCGETS, TIOCSCTTY, TIOCSTI in the upper half.
            for request in [0x5401, 0x540E, 0x5412 << 32, 0] {
                assert_eq!(
                    verdict(arch, number, request),
                    ALLOW,
                    "{arch:x} {request:x}"
                );
            }
            for other in [number + 1, number - 1, 1000] {
                assert_eq!(verdict(arch, other, 0x5412), ALLOW, "{arch:x} {other}");
            }
        }
        assert_eq!(verdict(0, 16, 0x5412), ALLOW);
    }
}
