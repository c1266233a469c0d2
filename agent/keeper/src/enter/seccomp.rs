//! Seccomp filters.

use nix::errno::Errno;

/// Loads a seccomp filter of BPF instructions, with the flags of `seccomp(2)`.
pub fn load_seccomp(filter: &[u8], flags: libc::c_ulong) -> Result<(), Errno> {
    const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;
    let (instructions, rest) = filter.as_chunks::<8>();
    if instructions.is_empty() || !rest.is_empty() {
        return Err(Errno::EINVAL);
    }
    let instructions: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|&[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::EINVAL)?,
        filter: instructions.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads `len` instructions and checks them.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    Errno::result(result).map(drop)
}
