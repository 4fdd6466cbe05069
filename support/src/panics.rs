//! The messages of panics, and their locations.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether panics of this thread are expected, and not printed.
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<(String, u32)> = const { RefCell::new((String::new(), 0)) };
}

/// The exit code of a test program that cannot catch panics, when a test needs that.
pub const CANNOT_CATCH: i32 = 77;

/// The result of `f`, or its panic. WebAssembly cannot catch one: there, the process exits with [`CANNOT_CATCH`].
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    if cfg!(target_family = "wasm") {
        std::process::exit(CANNOT_CATCH);
    }
    catch_unwind(AssertUnwindSafe(f))
}

/// The message of a panic that was caught.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().expect("a text").to_string(),
    }
}

/// The message of the panic of `f`, and the file and line of its location; `None` if there is none.
pub fn caught<R>(f: impl FnOnce() -> R) -> Option<(String, (String, u32))> {
    let mut f = Some(f);
    caught_dyn(&mut || drop(f.take().expect("once")()))
}

/// [`caught`], compiled once and not for every function.
fn caught_dyn(f: &mut dyn FnMut()) -> Option<(String, (String, u32))> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            let place = info.location().map(|l| (l.file().to_string(), l.line()));
            PLACE.set(place.unwrap_or_default());
            if !IS_EXPECTED.get() {
                usual(info);
            }
        }));
    });
    let outside = IS_EXPECTED.replace(true);
    let panic = catch(f).err();
    IS_EXPECTED.set(outside);
    panic.map(|panic| (message(panic), PLACE.take()))
}

/// The message of the panic of `f`.
#[track_caller]
pub fn panic_text<R>(f: impl FnOnce() -> R) -> String {
    caught(f).expect("a panic").0
}

/// The message of the panic of `f`, whose location must be in the lines of this call.
#[track_caller]
pub fn panic_here<R>(f: impl FnOnce() -> R) -> String {
    let here = Location::caller();
    let (text, (file, line)) = caught(f).expect("a panic");
    let near = file == here.file() && line.abs_diff(here.line()) <= 5;
    assert!(near, "{text:?} has the location {file}:{line}");
    text
}

/// Asserts that `f` panics with a message that contains `part`.
#[track_caller]
pub fn assert_panics<R>(part: &str, f: impl FnOnce() -> R) {
    let text = panic_text(f);
    assert!(text.contains(part), "{text:?} does not contain {part:?}");
}

/// [`assert_panics`]; the location of the panic must be in the lines of this call.
#[track_caller]
pub fn assert_panics_here<R>(part: &str, f: impl FnOnce() -> R) {
    let text = panic_here(f);
    assert!(text.contains(part), "{text:?} does not contain {part:?}");
}

/// Checks the panic of `f`, the expression `name`: its message, and that its location is in this file, below a line;
/// returns its line.
#[doc(hidden)]
pub fn check(
    f: &mut dyn FnMut(),
    name: &str,
    (want, is_whole): (&str, bool),
    (file, after): (&str, u32),
) -> u32 {
    let Some((text, (place, line))) = caught_dyn(f) else {
        panic!("below line {after}: `{name}` does not panic, wanted {want:?}");
    };
    let is_wanted = if is_whole { text == want } else { text.contains(want) };
    assert!(
        is_wanted && place == file && line > after,
        "below line {after}: the message of `{name}` is\n  {text}\nnot\n  {want}\nat {place}:{line}"
    );
    line
}

/// Checks that each expression panics with a message and at its own line: each line is below the one before.
#[macro_export]
macro_rules! panics {
    ($($e:expr => $want:expr;)+) => { $crate::panics!(true; $($e => $want;)+) };
    ($is_whole:literal; $($e:expr => $want:expr;)+) => {{
        let mut line = line!();
        $({
            let mut once = Some(|| _ = $e);
            let mut f = || once.take().expect("once")();
            let place = (file!(), line);
            line = $crate::panics::check(&mut f, stringify!($e), ($want.as_ref(), $is_whole), place);
        })+
        let _ = line;
    }};
}

/// [`panics!`] with messages that contain a text.
#[macro_export]
macro_rules! panics_here {
    ($($all:tt)+) => { $crate::panics!(false; $($all)+) };
}

/// Checks that each expression panics with a message that contains a text, and at a line of this file.
#[macro_export]
macro_rules! panics_with {
    ($($e:expr => $want:expr;)+) => {{
        $({
            let mut once = Some(|| _ = $e);
            let mut f = || once.take().expect("once")();
            let place = (file!(), 0);
            $crate::panics::check(&mut f, stringify!($e), ($want.as_ref(), false), place);
        })+
    }};
}
