//! The messages of panics, and their locations.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static PLACE: RefCell<(String, u32)> = const { RefCell::new((String::new(), 0)) };
}

/// The message of a panic that was caught.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().expect("a text").to_string(),
    }
}

/// The message of the panic of `f`.
#[track_caller]
pub fn panic_text<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("there was no panic"),
        Err(panic) => message(panic),
    }
}

/// The message of the panic of `f`, and the file and line of its location.
#[track_caller]
pub fn panic_place<R>(f: impl FnOnce() -> R) -> (String, (String, u32)) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            let place = info.location().map(|l| (l.file().to_string(), l.line()));
            PLACE.set(place.unwrap_or_default());
            usual(info);
        }));
    });
    (panic_text(f), PLACE.take())
}

/// The message of the panic of `f`, whose location must be in the lines of this call.
#[track_caller]
pub fn panic_here<R>(f: impl FnOnce() -> R) -> String {
    let here = Location::caller();
    let (text, (file, line)) = panic_place(f);
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
