//! Intel's ISA-L, loaded at run time if it is installed: a reference for tests and benchmarks, never a dependency.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uchar, c_void};

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *const c_uchar, *const *mut c_uchar);
type EncodeUpdate =
    unsafe extern "C" fn(c_int, c_int, c_int, c_int, *const c_uchar, *const c_uchar, *const *mut c_uchar);

/// The functions that tests and benchmarks compare with.
pub struct Isal {
    init_tables: InitTables,
    encode_data: EncodeData,
    encode_update: EncodeUpdate,
}

/// A matrix in the form that ISA-L reads.
pub struct Tables {
    bytes: Vec<u8>,
    sources: usize,
    rows: usize,
}

/// An array of pointers for a call. Small arrays are on the stack, so that ISA-L's time includes no allocation.
enum Pointers {
    Few([*mut c_uchar; 8]),
    Many(Vec<*mut c_uchar>),
}

impl Pointers {
    #[inline(always)]
    fn new(count: usize) -> Self {
        if count <= 8 {
            Self::Few([std::ptr::null_mut(); 8])
        } else {
            Self::Many(vec![std::ptr::null_mut(); count])
        }
    }

    #[inline(always)]
    fn slots(&mut self) -> &mut [*mut c_uchar] {
        match self {
            Self::Few(few) => few,
            Self::Many(many) => many,
        }
    }
}

impl Isal {
    /// Opens ISA-L. If it is not installed, prints how to get it and returns `None`.
    ///
    /// # Panics
    /// If it is not installed and `PARITAS_REQUIRE_ISAL` is set.
    pub fn open() -> Option<Self> {
        // SAFETY: the names are C strings, and the library has no constructors that matter.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            assert!(
                std::env::var_os("PARITAS_REQUIRE_ISAL").is_none(),
                "libisal.so.2 is required and not installed"
            );
            eprintln!("SKIPPED: libisal.so.2 is not installed (Debian: apt-get install libisal-dev)");
            return None;
        }
        let symbol = |name: &CStr| -> *mut c_void {
            // SAFETY: the library stays open as long as the process runs.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "libisal.so.2 has no {name:?}");
            found
        };
        // SAFETY: the types are those of ISA-L's erasure_code.h.
        unsafe {
            Some(Self {
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol(c"ec_init_tables")),
                encode_data: std::mem::transmute::<*mut c_void, EncodeData>(symbol(c"ec_encode_data")),
                encode_update: std::mem::transmute::<*mut c_void, EncodeUpdate>(symbol(c"ec_encode_data_update")),
            })
        }
    }

    /// Prepares `rows` rows of `sources` coefficients.
    pub fn tables(&self, matrix: &[u8], sources: usize, rows: usize) -> Tables {
        assert_eq!(matrix.len(), sources * rows);
        let mut bytes = vec![0; 32 * sources * rows];
        // SAFETY: the matrix and the 32 bytes a coefficient are as large as ISA-L wants them.
        unsafe { (self.init_tables)(sources as c_int, rows as c_int, matrix.as_ptr(), bytes.as_mut_ptr()) };
        Tables { bytes, sources, rows }
    }

    /// `targets = matrix × sources`.
    pub fn encode(&self, tables: &Tables, sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        assert_eq!((sources.len(), targets.len()), (tables.sources, tables.rows));
        let len = sources[0].len();
        assert!(sources.iter().all(|s| s.len() == len) && targets.iter().all(|t| t.len() == len));
        let (mut from, mut to) = (Pointers::new(tables.sources), Pointers::new(tables.rows));
        let (from, to) = (from.slots(), to.slots());
        from.iter_mut()
            .zip(sources)
            .for_each(|(f, s)| *f = s.as_ptr().cast_mut());
        to.iter_mut().zip(targets).for_each(|(t, s)| *t = s.as_mut_ptr());
        // SAFETY: counts and lengths were checked.
        unsafe {
            (self.encode_data)(
                len as c_int,
                tables.sources as c_int,
                tables.rows as c_int,
                tables.bytes.as_ptr(),
                from.as_ptr().cast(),
                to.as_ptr(),
            );
        }
    }

    /// `targets ^= matrix column × source`.
    pub fn update(&self, tables: &Tables, column: usize, source: &[u8], targets: &mut [&mut [u8]]) {
        assert!(column < tables.sources && targets.len() == tables.rows);
        assert!(targets.iter().all(|t| t.len() == source.len()));
        let mut to = Pointers::new(tables.rows);
        let to = to.slots();
        to.iter_mut().zip(targets).for_each(|(t, s)| *t = s.as_mut_ptr());
        // SAFETY: counts and lengths were checked.
        unsafe {
            (self.encode_update)(
                source.len() as c_int,
                tables.sources as c_int,
                tables.rows as c_int,
                column as c_int,
                tables.bytes.as_ptr(),
                source.as_ptr(),
                to.as_ptr(),
            );
        }
    }
}
