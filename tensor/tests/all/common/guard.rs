//! Memory between two guard pages, to detect accesses out of bounds.

/// Accessible pages between two guard pages.
pub struct Guarded(*mut u8, usize);

impl Guarded {
    /// `pages` zeroed pages.
    pub fn new(pages: usize) -> Guarded {
        // SAFETY: 1. A fresh anonymous mapping of `pages + 2` pages. 2. All but the first and
        // the last are made accessible.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let size = (pages + 2) * page;
            let p = libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            let middle = p.cast::<u8>().add(page);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(middle.cast(), pages * page, access), 0);
            Guarded(middle, pages * page)
        }
    }

    /// `len` elements that end where the memory ends, or that start where it starts.
    pub fn slice<T>(&mut self, len: usize, at_end: bool) -> &mut [T] {
        let bytes = len * size_of::<T>();
        let start = if at_end { self.1.checked_sub(bytes).expect("memory enough") } else { 0 };
        assert!(start + bytes <= self.1);
        // SAFETY: 1. `bytes` fit the accessible pages. 2. They were zeroed, and zero is a value
        // of f32, f64 and bool. 3. Both ends are aligned for all of them.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start).cast(), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: 1. The pages mapped in `new`, which nothing borrows any more.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            libc::munmap(self.0.sub(page).cast(), self.1 + 2 * page)
        };
    }
}
